package config

import (
	"path/filepath"
	"reflect"
)

// SharesProcess returns an error unless one process can run this configuration and that of another
// deployment: what a process has once must be equal in both.
func (c Config) SharesProcess(other Config) error {
	for _, of := range []struct {
		key       string
		has, want any
	}{
		{"etcd", c.Etcd, other.Etcd},
		{"dataDir", c.DataDir, other.DataDir},
		{"api.listen", c.API, other.API},
		{"api.applications", c.Applications, other.Applications},
		{"api.page", c.Page, other.Page},
		{"api.controllers", c.Controllers, other.Controllers},
		{"api.address", c.Address, other.Address},
		{"api.peers", c.Peers, other.Peers},
		{"api.regions", c.APIRegions, other.APIRegions},
		{"operator.listen", c.Operator, other.Operator},
		{"operator.metrics", c.Metrics, other.Metrics},
		{"operator.pprof", c.Profiles, other.Profiles},
		{"operator.traces", c.Traces, other.Traces},
		{"access", c.Access, other.Access},
		{"copy.deployments", c.Copy.Deployments, other.Copy.Deployments},
		{"rollouts.checks", c.RolloutChecks, other.RolloutChecks},
	} {
		if !reflect.DeepEqual(of.has, of.want) {
			return &Error{File: filepath.Base(c.Path), Key: of.key, Want: "want the same as in " + filepath.Base(other.Path) + ": the deployments of one process share it"}
		}
	}
	return nil
}
