package controller

import (
	"dbcontroller/record"
	"dbcontroller/throttle"
)

// pacing is how bulk work is held back as configured, without what is measured.
func (a *App) pacing() throttle.Config {
	return throttle.Config{MaxRate: a.cfg.Copy.MaxRate, MaxSourceLoad: a.cfg.Copy.MaxSourceLoad, Window: a.cfg.Copy.Window}
}

// pacer holds an engine's bulk work back as configured. What cannot be measured, for want
// of a way and not of a privilege, is not.
func (a *App) pacer(source, target record.Namespace) *throttle.Pacer {
	cfg := a.pacing()
	if !a.cfg.Copy.Unthrottled {
		cfg.Source, _ = source.(record.Monitor)
		cfg.Target, _ = target.(record.Monitor)
	}
	return throttle.New(cfg)
}
