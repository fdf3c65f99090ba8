// Package cli is the command line of a service's server: its flags. Package app owns the server.
//
// It is not for users and may change with any version.
package cli

import (
	"context"

	"github.com/spf13/cobra"

	"dbcontroller.dev/internal/program/process"
)

// Flags are the flags of a service's server.
type Flags struct {
	process.Flags
	Listen         string // address of the APIs
	OperatorListen string
}

// Command returns the command of a service's server, which calls serve with its flags.
func Command(name, short string, serve func(context.Context, Flags) error) *cobra.Command {
	var f Flags
	cmd := &cobra.Command{
		Use:           name + " --config FILE",
		Short:         short,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), f) },
	}
	f.Register(cmd.Flags())
	cmd.Flags().StringVar(&f.Listen, "listen", "127.0.0.1:8080", "address of the APIs")
	cmd.Flags().StringVar(&f.OperatorListen, "operator-listen", "127.0.0.1:7081", "address of /healthz, /readyz, /metrics and /usage")
	return cmd
}
