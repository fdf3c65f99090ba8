package cli

import (
	"github.com/spf13/cobra"

	"dbcontroller/cmd/dbcontroller/controller"
	"dbcontroller/cmd/internal/process"
)

func runCommand(register Register) *cobra.Command {
	var common process.Flags
	var opts controller.Options
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
			registry, carries, err := transformers(p.Config, register)
			if err != nil {
				return err
			}
			opts.Carry = carries
			opts.ID = p.ID
			return controller.New(p.Config, registry, p.Store, opts, p.Log).Run(cmd.Context())
		},
	}
	common.Register(cmd.Flags())
	cmd.Flags().BoolVar(&common.EmbeddedEtcd, "embedded-etcd", false, "host etcd in this process, in dataDir, where local processes find it")
	cmd.Flags().StringVar(&opts.APIListen, "api-listen", "", "address of the Deployment API (default: api.listen of the configuration)")
	cmd.Flags().StringVar(&opts.OperatorListen, "operator-listen", "", "address of /healthz, /readyz, /metrics and pprof (default: operator.listen)")
	return cmd
}
