package app

import (
	"path/filepath"

	"dbcontroller/config"
	"dbcontroller/controller"
	"dbcontroller/preflight"
	"dbcontroller/record"
)

// settings are what a configuration says to a controller. embedded: its coordination store is
// in a process of this machine.
func settings(cfg config.Config, embedded bool) controller.Settings {
	s := controller.Settings{
		File: filepath.Base(cfg.Path), Deployment: cfg.Deployment, RingSize: cfg.RingSize, InitialVersion: cfg.InitialVersion,
		Fences: map[string]record.FenceClass{},
		Copy: controller.Copy{
			Auto: cfg.Copy.Auto, MaxRate: cfg.Copy.MaxRate, Workers: cfg.Copy.Workers,
			Unthrottled: cfg.Copy.Unthrottled, MaxSourceLoad: cfg.Copy.MaxSourceLoad, Window: cfg.Copy.Window,
		},
		Switch: controller.Switch{
			Deadline: cfg.Switch.Deadline, MaxHold: cfg.Switch.MaxHold, Retries: cfg.Switch.Retries,
			MaxLag: cfg.Switch.MaxLag, Hold: cfg.Switch.Hold,
		},
		Coordination: preflight.Coordination{Endpoints: cfg.Etcd.Endpoints, Embedded: embedded},
		ShowValues:   cfg.ShowValues,
	}
	if !cfg.Etcd.IsTLS() {
		s.Coordination.Plaintext = config.Beyond(cfg.Etcd.Endpoints)
	}
	for _, db := range cfg.DBs {
		s.Databases = append(s.Databases, controller.Database{
			Version: db.Version, APIVersion: db.APIVersion, Name: db.Database, Location: "mongo:" + db.Database,
			Hosts: db.Hosts(), Plaintext: db.Plaintext(), Disabled: db.Disabled,
		})
	}
	for _, k := range cfg.Kinds {
		for _, kind := range []string{k.From, k.To} {
			if _, known := s.Fences[kind]; !known { // the first entry decides
				s.Fences[kind] = record.FenceClass(k.Fence)
			}
		}
	}
	return s
}
