package app

import (
	"net/http"

	"dbcontroller.dev/config"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/program/databases"
	"dbcontroller.dev/upgradestate"
)

// deployed is one of the deployments that a demo moves in the same run.
type deployed struct {
	name        string // for output
	deployment  string
	file        string // configuration file
	kinds       []string
	config      config.Config
	controllers []*child
	record      *deployment.Store
	line        *timeline
	after       upgradestate.Deployment // after the last switch
}

// newDeployments returns the two deployments of every demo.
func newDeployments() (services, application *deployed) {
	return &deployed{name: "services", deployment: servicesName, file: servicesFile, kinds: []string{"bbs", "secrets"}},
		&deployed{name: "application", deployment: applicationName, file: applicationFile, kinds: []string{packagesKind}}
}

// apis returns clients of the controllers' Deployment APIs.
func (d *deployed) apis(h *http.Client) []dbcontrollerv1connect.DeploymentServiceClient {
	return clientsOf(h, addresses(d.controllers), dbcontrollerv1connect.NewDeploymentServiceClient)
}

// engines returns the backends of the old and the new version.
func (d *deployed) engines() []string {
	var out []string
	for _, v := range []string{oldVersion, newVersion} {
		db, _ := d.config.DB(v)
		out = append(out, databases.Product(db))
	}
	return out
}

// addresses returns the API addresses of processes.
func addresses(cs []*child) []string {
	var out []string
	for _, c := range cs {
		out = append(out, c.api)
	}
	return out
}
