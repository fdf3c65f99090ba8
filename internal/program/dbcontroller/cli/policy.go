package cli

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
)

// asRetries converts a number of retries. A larger number would reach the API as another one.
func asRetries(n int) (int32, error) {
	if n < -1 || n > math.MaxInt32 {
		return 0, exit.Usagef("--retries %d: give -1 to %d", n, math.MaxInt32)
	}
	return int32(n), nil
}

// policyFlags are the conditions of an upgrade's switch.
type policyFlags struct {
	hold               bool
	deadline, maxPause time.Duration
	maxHold            time.Duration
	retries            int
}

func (p *policyFlags) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&p.hold, "hold", false, "wait for 'dbcontroller switch' when ready")
	cmd.Flags().DurationVar(&p.deadline, "deadline", 0, "abort a switch that takes longer, e.g. 5s; 0: as configured")
	cmd.Flags().DurationVar(&p.maxPause, "max-pause", 0, "delay the switch while the predicted pause is longer, e.g. 200ms; 0: do not")
	cmd.Flags().DurationVar(&p.maxHold, "max-hold", 0, "release held writes after this time and retry later, e.g. 2s; 0: as configured")
	cmd.Flags().IntVar(&p.retries, "retries", 0, "retries after an attempt that a deadline or failover ended; 0: as configured, -1: none")
}

// policy returns nil if no flag was given. The configured policy then applies.
func (p *policyFlags) policy() (*dbv1.SwitchPolicy, error) {
	if *p == (policyFlags{}) {
		return nil, nil
	}
	deadline, err1 := asMillis("deadline", p.deadline)
	maxPause, err2 := asMillis("max-pause", p.maxPause)
	maxHold, err3 := asMillis("max-hold", p.maxHold)
	retries, err4 := asRetries(p.retries)
	if err := cmp.Or(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	return &dbv1.SwitchPolicy{Hold: p.hold, DeadlineMs: deadline, MaxPauseMs: maxPause, MaxHoldMs: maxHold, Retries: retries}, nil
}

func policyCommand() *cobra.Command {
	a, p := &asker{}, &policyFlags{}
	var id string
	var noHold bool
	cmd := &cobra.Command{
		Use:   "set-policy",
		Short: "Change the conditions of the switch",
		Long: "Change the conditions of the running upgrade's switch before it begins. Omitted flags keep their\n" +
			"values.",
		Args: onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := p.change(cmd.Flags().Changed, noHold)
			if err != nil {
				return err
			}
			return a.do(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, dryRun bool, shown *dbv1.Deployment) (*connect.Response[dbv1.Deployment], error) {
				req.Name, req.UpgradeId, req.DryRun, req.RequestedBy = a.name, meant(id, shown), dryRun, a.who()
				return api.SetPolicy(ctx, connect.NewRequest(req))
			})
		},
	}
	a.register(cmd)
	p.register(cmd)
	cmd.Flags().BoolVar(&noHold, "no-hold", false, "switch without a command when everything is ready")
	cmd.Flags().StringVar(&id, "upgrade-id", "", "only this upgrade; empty: any")
	return cmd
}

// change returns the fields whose flags were given. The others keep their values.
func (p *policyFlags) change(given func(flag string) bool, noHold bool) (*dbv1.SetPolicyRequest, error) {
	flags := []string{"hold", "deadline", "max-pause", "max-hold", "retries"}
	switch {
	case given("hold") && noHold:
		return nil, exit.Usagef("--hold and --no-hold: give only one of them")
	case !noHold && !slices.ContainsFunc(flags, given):
		return nil, exit.Usagef("nothing to set: give --hold, --no-hold, --deadline, --max-pause, --max-hold or --retries")
	}
	to, err := p.policy()
	if err != nil {
		return nil, err
	}
	req := &dbv1.SetPolicyRequest{}
	if given("hold") || noHold {
		req.Hold = proto.Bool(to.GetHold() && !noHold)
	}
	if given("deadline") {
		req.DeadlineMs = proto.Int64(to.GetDeadlineMs())
	}
	if given("max-pause") {
		req.MaxPauseMs = proto.Int64(to.GetMaxPauseMs())
	}
	if given("max-hold") {
		req.MaxHoldMs = proto.Int64(to.GetMaxHoldMs())
	}
	if given("retries") {
		req.Retries = proto.Int32(to.GetRetries())
	}
	return req, nil
}
