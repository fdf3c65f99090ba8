// Package cli is the command line of dbcontroller. Results go to standard output,
// diagnostics to standard error; what fails says what, where and what to do.
package cli

import "github.com/spf13/cobra"

// Command is the whole command tree of a controller that has the transformers which
// register adds; nil adds none.
func Command(register Register) *cobra.Command {
	root := &cobra.Command{
		Use:   "dbcontroller",
		Short: "Move a live service's database to its next version, and back",
		Long: "dbcontroller keeps two databases, the old namespace and the new one: it copies and syncs every\n" +
			"record through transformers, holds writes for a moment, and switches. Start controllers with\n" +
			"'run', then 'begin-upgrade' and 'watch'.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(runCommand(register), lensCommand(), recoverCommand(), rolesCommand(), versionCommand(), contextCommand())
	root.AddCommand(operatorCommands()...)
	return root
}
