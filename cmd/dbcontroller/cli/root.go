// Package cli is the command line of dbcontroller. Results go to standard output,
// diagnostics to standard error; what fails says what, where and what to do.
//
// It is not for users and may change with any version.
package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"dbcontroller.dev/cmd/dbcontroller/app"
	"dbcontroller.dev/cmd/internal/build"
	"dbcontroller.dev/cmd/internal/process"
	"dbcontroller.dev/cmd/internal/traces"
)

// Program is what a build of dbcontroller has in it.
type Program struct {
	Register Register     // adds the service's transformers; nil: none
	Etcd     process.Host // for one machine; nil: none
}

// Command is the whole command tree of a controller that has the transformers which
// register adds, and no etcd in it; nil adds none.
func Command(register Register) *cobra.Command { return Program{Register: register}.Command() }

// Command is the whole command tree of the program.
func (p Program) Command() *cobra.Command {
	root := &cobra.Command{
		Use:   "dbcontroller",
		Short: "Move a live service's database to its next version, and back",
		Long: "dbcontroller keeps two databases, the old namespace and the new one: it copies and syncs every\n" +
			"record through transformers, holds writes for a moment, and switches. Start controllers with\n" +
			"'run', then 'begin-upgrade' and 'watch'.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	if p.Etcd != nil {
		root.AddCommand(etcdCommand(p.Etcd))
	}
	root.AddCommand(runCommand(p), lensCommand(), recoverCommand(), rolesCommand(), versionCommand(), contextCommand(), initCommand())
	root.AddCommand(operatorCommands()...)
	return root
}

func runCommand(program Program) *cobra.Command {
	common := process.Flags{Host: program.Etcd}
	var opts app.Options
	cmd := &cobra.Command{
		Use:   "run --config FILE",
		Short: "Run a controller: copy, sync, verify, switch, and serve the Deployment API",
		Long: "Run a controller. Several controllers over the same etcd share the shards; any of them can be\n" +
			"stopped (SIGTERM hands its shards over) or killed at any time.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := process.Start(cmd.Context(), common)
			if err != nil {
				return err
			}
			defer p.Close()
			registry, carries, err := Transformers(p.Config, program.Register)
			if err != nil {
				return err
			}
			tracer, stop, err := traces.Open(p.Config, p.ID, p.Log)
			if err != nil {
				return err
			}
			defer stop()
			opts.Tracer = tracer
			opts.Carry = carries
			opts.ID = p.ID
			opts.EmbeddedEtcd = p.Embedded
			opts.Insecure = common.Insecure
			return app.New(p.Config, registry, p.Store, opts, p.Log).Run(cmd.Context())
		},
	}
	common.Register(cmd.Flags())
	cmd.Flags().BoolVar(&common.EmbeddedEtcd, "embedded-etcd", false, "host etcd in this process, in dataDir, where local processes find it")
	cmd.Flags().StringVar(&opts.APIListen, "api-listen", "", "address of the Deployment API (default: api.listen of the configuration)")
	cmd.Flags().StringVar(&opts.AppsListen, "applications-listen", "", "address of what applications call of the Deployment API, alone (default: api.applications)")
	cmd.Flags().StringVar(&opts.OperatorListen, "operator-listen", "", "address of /healthz, /readyz and /metrics (default: operator.listen)")
	cmd.Flags().DurationVar(&opts.StartupWait, "startup-wait", 30*time.Second, "how long the very first start of a deployment waits for databases that do not answer; a deployment that has lived waits as long as it takes")
	return cmd
}

func versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Say which build this is: version, commit and platform",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info := build.Read()
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(info)
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), cmd.Root().Name(), info)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// Main runs the command line, and is all that the main function of a service's own
// controller has to call: register adds the service's transformers, and lenses of
// fixed-name kinds come from the configuration as ever.
func Main(register Register) { Program{Register: register}.Main() }

// Main runs the command line of the program.
func (p Program) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := p.Command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dbcontroller:", err)
		os.Exit(1)
	}
}
