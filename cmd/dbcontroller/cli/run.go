package cli

import (
	"time"

	"github.com/spf13/cobra"

	"dbcontroller/cmd/dbcontroller/app"
	"dbcontroller/cmd/internal/process"
)

func runCommand(register Register) *cobra.Command {
	var common process.Flags
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
			registry, carries, err := Transformers(p.Config, register)
			if err != nil {
				return err
			}
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
