package cli

import (
	"io"
	"slices"

	"github.com/spf13/cobra"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/program/databases"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/registry"
)

// fixedKinds returns the application's collections in each API version, including those made by
// lenses.
func fixedKinds(cfg config.Config, register registry.Register) (map[string][]string, error) {
	transformers, _, err := registry.Of(cfg, register)
	if err != nil {
		return nil, err
	}
	kinds := map[string][]string{}
	for _, version := range cfg.APIVersions() {
		for _, k := range transformers.Kinds(version) {
			if k.Fixed {
				kinds[version] = append(kinds[version], k.Name)
			}
		}
	}
	return kinds, nil
}

func rolesCommand(register registry.Register) *cobra.Command {
	var file, part string
	var why, rehearse bool
	cmd := &cobra.Command{
		Use:   "roles --config FILE [--for controller|server|application] [--why]",
		Short: "Print a script that creates the least role in MongoDB and etcd",
		Long: "Print a script for mongosh that creates the least role for a controller, a server or an\n" +
			"application on the databases of a configuration. Run it on each cluster as a user that may create\n" +
			"roles, and grant the role to the user in the connection strings. An application's role covers the\n" +
			"collections of its kinds in each version, by name. Before an upgrade to a version that the\n" +
			"configuration lacked, print it again and use updateRole instead of createRole. For databases in\n" +
			"etcd the script has the commands for etcdctl as comments. The command connects to nothing.",
		Example: "dbcontroller roles --config shop.yaml | mongosh mongodb://root@db1/admin",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := databases.Part(part)
			if !slices.Contains(databases.Parts, p) {
				return exit.Usagef("--for %q: use controller, server or application", part)
			}
			// --why needs no configuration.
			if why {
				_, err := io.WriteString(cmd.OutOrStdout(), databases.Why(p))
				return err
			}
			if file == "" {
				return exit.Usagef("no configuration given: use --config FILE")
			}
			cfg, err := config.Load(file, nil)
			if err != nil {
				return err
			}
			kinds := map[string][]string{}
			// Only an application's role lists collections. Loading the lenses for the others could
			// fail needlessly.
			if p == databases.Application {
				if kinds, err = fixedKinds(cfg, register); err != nil {
					return err
				}
			}
			text, err := databases.Roles(cfg.DBs, kinds, p, rehearse)
			if err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file (YAML); see docs/configuration.md")
	cmd.Flags().StringVar(&part, "for", "controller", "owner of the role: controller, server or application")
	cmd.Flags().BoolVar(&rehearse, "rehearse", true, "for a controller: include the scratch databases of 'rehearse'")
	cmd.Flags().BoolVar(&why, "why", false, "print each privilege and its purpose instead")
	return cmd
}
