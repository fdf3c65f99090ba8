package app

import (
	"net/http"

	"dbcontroller.dev/cmd/internal/databases"
	"dbcontroller.dev/config"
	"dbcontroller.dev/deployment"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/upgradestate"
)

// deployed is one of the deployments that a demo moves, all in the same run.
type deployed struct {
	name        string // for people
	deployment  string
	file        string // of its configuration
	kinds       []string
	config      config.Config
	controllers []*child
	record      *deployment.Store
	line        *timeline
	after       upgradestate.Deployment // after the last switch
}

// newDeployments are those of every demo, as results name what is in them.
func newDeployments() (services, application *deployed) {
	return &deployed{name: "services", deployment: servicesName, file: servicesFile, kinds: []string{"bbs", "secrets"}},
		&deployed{name: "application", deployment: applicationName, file: applicationFile, kinds: []string{packagesKind}}
}

// apis are the Deployment APIs of the controllers.
func (d *deployed) apis(h *http.Client) []dbcontrollerv1connect.DeploymentServiceClient {
	return clientsOf(h, addresses(d.controllers), dbcontrollerv1connect.NewDeploymentServiceClient)
}

// engines are the databases of the old version and the new one.
func (d *deployed) engines() []string {
	var out []string
	for _, v := range []string{oldVersion, newVersion} {
		db, _ := d.config.DB(v)
		out = append(out, databases.Product(db))
	}
	return out
}

// addresses are where processes listen.
func addresses(cs []*child) []string {
	var out []string
	for _, c := range cs {
		out = append(out, c.api)
	}
	return out
}
