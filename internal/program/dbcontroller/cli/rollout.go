package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/view"
)

func rolloutCommand() *cobra.Command {
	return verb("rollout", "Upgrade many deployments in waves",
		rolloutBeginCommand(), rolloutGetCommand(), rolloutListCommand(),
		rolloutChangeCommand("pause", "Begin no further deployment and pass no gate", dbv1.ChangeRolloutRequest_PAUSE),
		rolloutChangeCommand("resume", "Continue a paused, stopped or rolled back rollout", dbv1.ChangeRolloutRequest_RESUME),
		rolloutChangeCommand("stop", "End a rollout where it is", dbv1.ChangeRolloutRequest_STOP),
		rolloutChangeCommand("rollback", "Return the deployments of one or more waves", dbv1.ChangeRolloutRequest_ROLLBACK),
		rolloutForgetCommand())
}

// registerRollout adds the flags of a command that changes a rollout. Rollouts span deployments, so
// --name means nothing here.
func (a *asker) registerRollout(cmd *cobra.Command) {
	a.register(cmd)
	cmd.Flags().Lookup("name").Hidden = true
}

func rolloutBeginCommand() *cobra.Command {
	a := &asker{}
	req := &dbv1.BeginRolloutRequest{Policy: &dbv1.RolloutPolicy{}}
	var waves []string
	var file string
	var pause, hold, gateLimit, waveLimit, maxLag time.Duration
	cmd := &cobra.Command{
		Use:   "begin NAME --target-version VERSION --wave DEPLOYMENT,... [--wave DEPLOYMENT,...]",
		Short: "Begin to upgrade many deployments in waves",
		Long: "Begin to upgrade many deployments in waves. The deployments of a wave upgrade at the same time. The\n" +
			"next wave begins when the gate of the wave has passed: every deployment has switched, nothing is\n" +
			"known against it (breaches, parked records, lag), and the checks pass, all of this for --hold. If a\n" +
			"wave fails, the rollout stops, and rolls the wave back unless --stop-only is given. The deployments\n" +
			"of later waves stay untouched. A repeated call changes nothing.\n\n" +
			"--waves FILE has one deployment on each line, and an empty line between two waves. --check names a\n" +
			"command of rollouts.checks in the controllers' configuration; see docs/rollout.md.",
		Example: "  dbcontroller rollout begin v2-everywhere --target-version v2 --waves waves.txt \\\n" +
			"    --hold 10m --pause 1h --check errors",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Name = args[0]
			if req.TargetVersion == "" {
				return exit.Usagef("no version given: use --target-version, e.g. --target-version v2")
			}
			var err error
			if req.Waves, err = readWaves(waves, file); err != nil {
				return err
			}
			p := req.Policy
			for _, of := range []struct {
				flag string
				d    time.Duration
				to   *int64
			}{{"pause", pause, &p.PauseMs}, {"gate-limit", gateLimit, &p.GateLimitMs}, {"wave-limit", waveLimit, &p.WaveLimitMs}, {"max-lag", maxLag, &p.MaxLagMs}} {
				if *of.to, err = asMillis(of.flag, of.d); err != nil {
					return err
				}
			}
			holds, err := asMillis("hold", hold)
			if err != nil {
				return err
			}
			p.HoldMs = &holds
			return a.doRollout(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, dry bool) (*connect.Response[dbv1.Rollout], error) {
				req.DryRun, req.RequestedBy = dry, a.who()
				return api.BeginRollout(ctx, connect.NewRequest(req))
			})
		},
	}
	a.registerRollout(cmd)
	f := cmd.Flags()
	f.StringVar(&req.TargetVersion, "target-version", "", "version to move to, e.g. v2")
	f.StringArrayVar(&waves, "wave", nil, "deployments of one wave, separated by commas; repeat it for the next wave")
	f.StringVar(&file, "waves", "", "file with the deployments, one on each line, with an empty line between two waves")
	f.DurationVar(&pause, "pause", 0, "pause between two waves")
	f.DurationVar(&hold, "hold", 30*time.Second, "how long the conditions of a gate must hold")
	f.DurationVar(&gateLimit, "gate-limit", 10*time.Minute, "a wave fails if its gate has not passed by then")
	f.DurationVar(&waveLimit, "wave-limit", 0, "a wave fails if its upgrades have not ended by then; 0: no limit")
	f.DurationVar(&maxLag, "max-lag", 0, "highest lag of the version that follows; 0: not checked")
	f.StringSliceVar(&req.Policy.Checks, "check", nil, "names of checks that must pass, separated by commas")
	f.BoolVar(&req.Policy.StopOnly, "stop-only", false, "leave a failed wave as it is; otherwise it is rolled back")
	return cmd
}

// maxWavesFile bounds the file with the waves.
const maxWavesFile = 1 << 20

// readWaves returns the waves of --wave or of the file of --waves.
func readWaves(flags []string, file string) ([]*dbv1.RolloutWave, error) {
	if (len(flags) > 0) == (file != "") {
		return nil, exit.Usagef("give the waves either with --wave or with --waves FILE")
	}
	lines := flags
	if file != "" {
		info, err := os.Stat(file)
		if err != nil {
			return nil, exit.With(exit.Usage, fmt.Errorf("read waves: %w", err))
		}
		if info.Size() > maxWavesFile {
			return nil, exit.Usagef("--waves %s: %d bytes: want at most %d", file, info.Size(), maxWavesFile)
		}
		text, err := os.ReadFile(file) // #nosec G304 -- operators name the file
		if err != nil {
			return nil, exit.With(exit.Usage, fmt.Errorf("read waves: %w", err))
		}
		lines = wavesOf(string(text))
	}
	var waves []*dbv1.RolloutWave
	for _, line := range lines {
		w := &dbv1.RolloutWave{}
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.TrimSpace(name); name != "" {
				w.Deployments = append(w.Deployments, &dbv1.RolloutDeployment{Name: name})
			}
		}
		waves = append(waves, w)
	}
	return waves, nil
}

// wavesOf returns the waves of a file, each as names separated by commas. Lines that begin with #
// are comments.
func wavesOf(text string) []string {
	var waves, names []string
	for line := range strings.SplitSeq(text+"\n\n", "\n") {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "#"):
		case line != "":
			names = append(names, line)
		case len(names) > 0:
			waves, names = append(waves, strings.Join(names, ",")), nil
		}
	}
	return waves
}

func rolloutGetCommand() *cobra.Command {
	c := &connection{}
	cmd := &cobra.Command{
		Use:   "get NAME",
		Short: "Show a rollout: its waves, deployments and history",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient) error {
				r, err := unary(ctx, c, api.GetRollout, &dbv1.GetRolloutRequest{Name: args[0]})
				if err != nil {
					return err
				}
				if c.json {
					return terminal.JSON(cmd.OutOrStdout(), r)
				}
				return view.Rollout(cmd.OutOrStdout(), r)
			})
		},
	}
	c.register(cmd)
	cmd.Flags().Lookup("name").Hidden = true
	return cmd
}

func rolloutListCommand() *cobra.Command {
	c := &connection{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the rollouts in the controllers' etcd",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient) error {
				all, err := unary(ctx, c, api.ListRollouts, &dbv1.ListRolloutsRequest{})
				if err != nil {
					return err
				}
				if c.json {
					err = terminal.JSON(cmd.OutOrStdout(), all)
				} else {
					err = view.Rollouts(cmd.OutOrStdout(), all.GetRollouts())
				}
				if err == nil && len(all.GetUnreadable()) > 0 {
					err = exit.Errorf(exit.Failed, "not listed: %s", strings.Join(all.GetUnreadable(), "; "))
				}
				return err
			})
		},
	}
	c.register(cmd)
	cmd.Flags().Lookup("name").Hidden = true
	return cmd
}

func rolloutChangeCommand(name, short string, do dbv1.ChangeRolloutRequest_Verb) *cobra.Command {
	a := &asker{}
	req := &dbv1.ChangeRolloutRequest{Verb: do}
	cmd := &cobra.Command{
		Use:   name + " NAME",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Name = args[0]
			if req.FromWave < 0 {
				return exit.Usagef("--from-wave %d: give a wave from 1, or 0 for the current one", req.FromWave)
			}
			return a.doRollout(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, dry bool) (*connect.Response[dbv1.Rollout], error) {
				req.DryRun, req.RequestedBy = dry, a.who()
				return api.ChangeRollout(ctx, connect.NewRequest(req))
			})
		},
	}
	a.registerRollout(cmd)
	if do != dbv1.ChangeRolloutRequest_RESUME {
		cmd.Flags().StringVar(&req.Reason, "reason", "", "reason, recorded in the rollout's history")
	}
	switch do { //nolint:exhaustive // the others need no more words
	case dbv1.ChangeRolloutRequest_RESUME:
		cmd.Long = short + ". A wave that failed or went back begins again, with the\ndeployments that do not serve the target yet. Limits and hold times begin anew."
	case dbv1.ChangeRolloutRequest_STOP:
		cmd.Long = short + ". No further deployment begins. Running upgrades go on; use 'abort'\nfor a single one, or 'rollout rollback' for the wave. 'rollout resume' continues the rollout."
	case dbv1.ChangeRolloutRequest_ROLLBACK:
		cmd.Long = short + ": abort the running upgrades of the rollout, and roll\nback those that have switched. Upgrades of others stay. The deployments return without losing later\nwrites, as with 'rollback'."
		cmd.Flags().Int32Var(&req.FromWave, "from-wave", 0, "first wave to roll back, from 1; later waves go back, too; 0: the current wave alone")
	}
	return cmd
}

func rolloutForgetCommand() *cobra.Command {
	a := &asker{}
	var confirm string
	cmd := &cobra.Command{
		Use:   "forget NAME",
		Short: "Delete the record of a rollout that has ended or was stopped",
		Long: "Delete the record of a rollout that has ended or was stopped. It changes no deployment.\n\n" +
			"A record that no controller can read keeps other rollouts from beginning. To delete it, give its\n" +
			"name again with --confirm.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.doRollout(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, dry bool) (*connect.Response[dbv1.Rollout], error) {
				return api.ForgetRollout(ctx, connect.NewRequest(&dbv1.ForgetRolloutRequest{Name: args[0], DryRun: dry, RequestedBy: a.who(), Confirm: confirm}))
			})
		},
	}
	a.registerRollout(cmd)
	cmd.Flags().StringVar(&confirm, "confirm", "", "name of the rollout again, to delete a record that cannot be read")
	return cmd
}

// doRollout makes a call that changes a rollout, after a dry run has shown its effects.
func (a *asker) doRollout(cmd *cobra.Command, ask func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, dry bool) (*connect.Response[dbv1.Rollout], error)) error {
	return a.call(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient) error {
		dry := func(ctx context.Context) (*connect.Response[dbv1.Rollout], error) { return ask(ctx, api, true) }
		r, err := would(ctx, &a.connection, dry)
		if err != nil {
			return err
		}
		shown := r.GetEffects()
		announce(cmd.ErrOrStderr(), "will", shown)
		if a.dryRun {
			if a.json {
				return terminal.JSON(cmd.OutOrStdout(), r)
			}
			return nil
		}
		r, resolved, err := change[dbv1.Rollout]{
			send: func(ctx context.Context) (*connect.Response[dbv1.Rollout], error) { return ask(ctx, api, false) },
			dry:  dry,
			done: func(r *dbv1.Rollout) bool { return idle(r.GetEffects()) },
		}.make(ctx, &a.connection, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		if resolved {
			r.Effects = shown
		}
		if a.json {
			return terminal.JSON(cmd.OutOrStdout(), r)
		}
		word := "done"
		if idle(r.GetEffects()) {
			word = "nothing changed"
		}
		return terminal.Write(cmd.OutOrStdout(), fmt.Appendf(nil, "%s: %s\n", word, view.RolloutLine(r)))
	})
}
