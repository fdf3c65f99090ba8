package app

import (
	"fmt"
	"path/filepath"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/control/controller/rollouts"
	"dbcontroller.dev/internal/engine/hooks"
)

// hooksOf converts the hooks of a configuration. It checks that commands exist, so that a wrong
// path fails at the start and not at the first event. Only the controller checks this: other
// machines that read the file may lack the programs.
func hooksOf(cfg config.Config) ([]hooks.Hook, error) {
	var all []hooks.Hook
	for i, h := range cfg.Hooks {
		made := hooks.Hook{Name: h.Name, Timeout: h.Timeout, GiveUp: h.GiveUp}
		for _, e := range h.Events {
			made.Events = append(made.Events, hooks.Type(e))
		}
		// Errors name the file and the key, as those of package config do.
		refuse := func(key, value, want string) error {
			return &config.Error{File: filepath.Base(cfg.Path), Key: fmt.Sprintf("hooks[%d].%s", i, key), Value: value, Want: want}
		}
		if len(h.Command) > 0 {
			if err := hooks.CheckCommand(h.Command[0]); err != nil {
				return nil, refuse("command", h.Command[0], err.Error()+": want a program that this process may run")
			}
			made.Sender = hooks.NewCommand(h.Command)
		} else {
			sender, err := hooks.NewWebhook(h.URL.Reveal(), h.Secret.Reveal())
			if err != nil {
				return nil, refuse("secret", "", err.Error())
			}
			made.Sender = sender
		}
		all = append(all, made)
	}
	return all, nil
}

// checksOf converts the checks of rollouts, with the same checks of their commands.
func checksOf(cfg config.Config) (map[string]rollouts.Check, error) {
	all := map[string]rollouts.Check{}
	for i, c := range cfg.RolloutChecks {
		if err := hooks.CheckCommand(c.Command[0]); err != nil {
			return nil, &config.Error{File: filepath.Base(cfg.Path), Key: fmt.Sprintf("rollouts.checks[%d].command", i), Value: c.Command[0],
				Want: err.Error() + ": want a program that this process may run"}
		}
		all[c.Name] = rollouts.Command(c.Command, c.Timeout)
	}
	return all, nil
}
