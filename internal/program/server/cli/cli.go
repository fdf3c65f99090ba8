// Package cli is the command line of a service's server: its flags and its configuration. Package
// app owns the server itself.
//
// It is not for users and may change with any version.
package cli

import (
	"github.com/spf13/cobra"

	"dbcontroller.dev/internal/program/process"
	"dbcontroller.dev/internal/program/server/app"
)

// Command returns the command of a service's server. opts holds the settings that have no flags.
func Command(name, short string, service app.Service, opts app.Options) *cobra.Command {
	var common process.Flags
	cmd := &cobra.Command{
		Use:           name + " --config FILE",
		Short:         short,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := process.Start(cmd.Context(), common)
			if err != nil {
				return err
			}
			defer p.Close()
			opts.ID = p.ID
			opts.Insecure = common.Insecure
			return app.New(p.Config, service, p.Store, opts, p.Log).Run(cmd.Context())
		},
	}
	common.Register(cmd.Flags())
	cmd.Flags().StringVar(&opts.Listen, "listen", "127.0.0.1:8080", "address of the APIs")
	cmd.Flags().StringVar(&opts.OperatorListen, "operator-listen", "127.0.0.1:7081", "address of /healthz, /readyz, /metrics and /usage")
	return cmd
}
