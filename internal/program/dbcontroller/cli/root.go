// Package cli is the command line of dbcontroller. Commands either run a controller, call the
// Deployment API of a running one, or work on files and databases directly (lens, keys, roles,
// recover). Results go to standard output, diagnostics to standard error. An error names the
// failure, its place and the next step; its exit status is stable (see ExitStatus).
//
// The package does not own the meaning of operations: package deployment and its API decide whether
// an operation is allowed. Begin to read at Program.Command, then at asker.do, which all changing
// commands share.
//
// It is not for users and may change with any version.
package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"dbcontroller.dev/config"
	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/base/printable"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/engine/collections"
	"dbcontroller.dev/internal/program/build"
	"dbcontroller.dev/internal/program/dbcontroller/app"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/lenses"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/offline"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/registry"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
	"dbcontroller.dev/internal/program/process"
	"dbcontroller.dev/internal/program/traces"
	"dbcontroller.dev/transform"
)

// Register adds a service's own transformers to an empty registry. The registry's Service is the
// one of the configuration.
type Register = registry.Register

// Transformers returns the registry of a configuration, with the transformers that register adds, and
// the indexes and options that each pair of versions carries over. A nil register adds nothing.
func Transformers(cfg config.Config, register Register) (*transform.Registry, collections.Carries, error) {
	return registry.Of(cfg, register)
}

// Program is the content of one build of dbcontroller. The zero value has neither transformers of a
// service nor an etcd.
type Program struct {
	Register Register     // adds the service's transformers; nil: none
	Etcd     process.Host // runs an etcd in this process; nil: not available
}

// Command returns the command tree of a controller with the transformers that register adds. A nil
// register adds none. The tree has no embedded etcd.
func Command(register Register) *cobra.Command { return Program{Register: register}.Command() }

// Command returns the command tree of the program.
func (p Program) Command() *cobra.Command {
	root := &cobra.Command{
		Use:   "dbcontroller",
		Short: "Move a live database to its next version, and back",
		Long: "dbcontroller keeps two databases, the old namespace and the new one. It copies and syncs every\n" +
			"record through transformers, holds writes for a moment, and switches. Start controllers with\n" +
			"'run', then use 'begin-upgrade' and 'watch'.",
		SilenceUsage:     true,
		SilenceErrors:    true,
		Version:          build.Read().String(),
		PersistentPreRun: func(cmd *cobra.Command, _ []string) { terminal.QuoteOutput(cmd) },
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	// Not every build links an etcd, which is large. Without one the command must not appear.
	if p.Etcd != nil {
		root.AddCommand(etcdCommand(p.Etcd))
	}
	root.AddCommand(runCommand(p), proxyCommand(), verb("lens", "Check lenses and try them on real records", lenses.Commands()...), offline.RecoverCommand(), offline.RemoveCommand(), offline.ForgetKindsCommand(p.Register), rolesCommand(p.Register), versionCommand(), contextCommand(), initCommand())
	root.AddCommand(operatorCommands(p.Register)...)
	markUsage(root)
	return root
}

// service marks commands that run until they are stopped, in Annotations. A service manager restarts
// them, so their usage errors have a status of their own.
const service = "service"

// markUsage gives every error in flags and arguments the exit status of a usage error, for cmd and
// all its subcommands.
func markUsage(cmd *cobra.Command) {
	status := exit.Usage
	if _, ok := cmd.Annotations[service]; ok {
		status = exit.Misconfig
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit.With(status, err) })
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error { return exit.With(status, check(cmd, args)) }
	}
	for _, sub := range cmd.Commands() {
		markUsage(sub)
	}
}

// start opens the configuration, the log and etcd of a command. Its errors count as usage errors,
// unless etcd does not answer.
func start(ctx context.Context, flags process.Flags) (*process.Process, error) {
	p, err := process.Start(ctx, flags)
	return p, exit.OfStart(err)
}

func runCommand(program Program) *cobra.Command {
	common := process.Flags{Host: program.Etcd}
	var opts app.Options
	cmd := &cobra.Command{
		Use:   "run --config FILE",
		Short: "Run a controller: copy, sync, verify, switch, and serve the Deployment API",
		Long: "Run a controller. Controllers with the same etcd share the shards. Each can be stopped or killed\n" +
			"at any time; SIGTERM first hands over its shards.\n\n" +
			"With several files, or a folder of them, one process runs a controller for each deployment.",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{service: ""},
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := start(cmd.Context(), common)
			if err != nil {
				return exit.OfService(err)
			}
			defer p.Close()
			// Build the transformers before the controller joins: a wrong lens must fail before it
			// owns shards.
			deployments := make([]app.Deployment, 0, len(p.All))
			for _, cfg := range p.All {
				transformers, carries, err := registry.Of(cfg, program.Register)
				if err != nil && len(p.All) > 1 {
					err = fmt.Errorf("%s: %w", filepath.Base(cfg.Path), err)
				}
				if err != nil {
					return exit.With(exit.Misconfig, err)
				}
				deployments = append(deployments, app.Deployment{Config: cfg, Registry: transformers, Carry: carries})
			}
			tracer, stop, err := traces.Open(p.Config, p.ID, p.Log)
			if err != nil {
				return err
			}
			defer stop()
			opts.Tracer = tracer
			opts.Carry = deployments[0].Carry
			opts.ID = p.ID
			b := build.Read()
			opts.Build = api.Build{Version: b.Version, Commit: b.Commit, Date: b.Date, Go: b.Go, Platform: b.Platform}
			opts.EmbeddedEtcd = p.Embedded
			opts.Insecure = common.Insecure
			if len(deployments) == 1 {
				return app.New(p.Config, deployments[0].Registry, p.Store, opts, p.Log).Run(cmd.Context())
			}
			fleet, err := app.NewFleet(deployments, p.Store, opts, p.Log)
			if err != nil {
				return exit.With(exit.Misconfig, err)
			}
			return fleet.Run(cmd.Context())
		},
	}
	common.RegisterSeveral(cmd.Flags())
	cmd.Flags().BoolVar(&common.EmbeddedEtcd, "embedded-etcd", false, "run etcd in this process, with its data in dataDir; local processes find it there")
	cmd.Flags().StringVar(&opts.APIListen, "api-listen", "", "address of the Deployment API (default: api.listen of the configuration)")
	cmd.Flags().StringVar(&opts.AppsListen, "applications-listen", "", "address of the calls of the Deployment API that applications need (default: api.applications)")
	cmd.Flags().BoolVar(&opts.NoPage, "no-page", false, "do not serve the page for browsers at /ui/ of the API (default: api.page)")
	cmd.Flags().StringVar(&opts.OperatorListen, "operator-listen", "", "address of /healthz, /readyz and /metrics (default: operator.listen)")
	cmd.Flags().DurationVar(&opts.StartupWait, "startup-wait", 30*time.Second, "limit for the first start of a deployment to wait for unreachable databases; later starts have no limit")
	return cmd
}

func versionCommand() *cobra.Command {
	c := &connection{}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the build: version, commit and platform; also a controller's",
		Long: "Print the build: version, commit and platform. With --server or --context, print also the build of\n" +
			"that controller, the protocol that servers need for its upgrades, and the format of its stored\n" +
			"state.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var there *dbv1.Version
			if c.flags.Server != "" || c.context != "" {
				err := c.call(cmd, func(ctx context.Context, client dbcontrollerv1connect.DeploymentServiceClient) (err error) {
					there, err = unary(ctx, c, client.GetVersion, &dbv1.GetVersionRequest{})
					// Controllers of earlier releases lack GetVersion. The local build is still
					// worth printing.
					if connect.CodeOf(err) == connect.CodeUnimplemented {
						there, err = &dbv1.Version{Version: "an older version that does not report its number"}, nil
					}
					return err
				})
				if err != nil {
					return err
				}
			}
			return printVersion(cmd.OutOrStdout(), cmd.Root().Name(), build.Read(), there, c.json)
		},
	}
	c.register(cmd)
	// GetVersion reports on a controller, not on a deployment.
	cmd.Flags().Lookup("name").Hidden = true
	return cmd
}

// versionOutput is the JSON output of version: this build and, if asked, the controller's.
type versionOutput struct {
	build.Info
	Controller json.RawMessage `json:"controller,omitempty"`
}

func printVersion(w io.Writer, name string, here build.Info, there *dbv1.Version, asJSON bool) error {
	if asJSON {
		out := versionOutput{Info: here}
		if there != nil {
			text, err := api.ToJSON(there)
			if err != nil {
				return fmt.Errorf("encode JSON: %w", err)
			}
			out.Controller = text
		}
		return json.NewEncoder(w).Encode(out)
	}
	text := fmt.Sprintln(name, here)
	switch {
	case there == nil:
	// A controller without a format is an older one, which reports no more.
	case there.GetFormat() == 0:
		text += fmt.Sprintln("controller", there.GetVersion())
	default:
		text += fmt.Sprintf("controller %s (commit %s of %s; %s, %s); servers speak protocol %d or a newer one, records have format %d\n",
			there.GetVersion(), there.GetCommit(), there.GetDate(), there.GetGo(), there.GetPlatform(), there.GetProtocol(), there.GetFormat())
	}
	return terminal.Write(w, []byte(text))
}

// ExitStatus returns the exit status for the error that a command ended with. nil gives 0.
// docs/cli.md lists all of them.
func ExitStatus(err error) int { return int(exit.Of(err)) }

// Main runs the command line and exits the process. A service's own controller calls only this from
// its main function. register adds the service's transformers. Lenses of fixed-name kinds still
// come from the configuration.
func Main(register Register) { Program{Register: register}.Main() }

// Main runs the command line of the program and exits the process.
func (p Program) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := p.Command().ExecuteContext(ctx)
	// os.Exit runs no deferred calls, so restore the signals here.
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dbcontroller:", printable.Line(err.Error()))
	}
	os.Exit(ExitStatus(err))
}
