package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/config"
	"dbcontroller.dev/record/mongostore"
	"dbcontroller.dev/rehearsal"
)

func rolesCommand() *cobra.Command {
	var file, part string
	var why, rehearse bool
	cmd := &cobra.Command{
		Use:   "roles --config FILE [--for controller|server|application] [--why]",
		Short: "Print a script for mongosh that makes the least role in MongoDB",
		Long: "Print a script for mongosh that makes a role with the privileges that a controller, a server or an application\n" +
			"needs on the databases of a configuration, and no others. Run it on each cluster, as a user who may make roles,\n" +
			"and grant the role to the user of the connection strings. It connects to nothing.",
		Example: "dbcontroller roles --config shop.yaml | mongosh mongodb://root@db1/admin",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := mongostore.Part(part)
			if !slices.Contains([]mongostore.Part{mongostore.Controller, mongostore.Server, mongostore.Application}, p) {
				return usage("--for %q: use controller, server or application", part)
			}
			if why {
				return printWhy(cmd.OutOrStdout(), p)
			}
			if file == "" {
				return usage("no configuration: give one with --config FILE")
			}
			cfg, err := config.Load(file, nil)
			if err != nil {
				return err
			}
			return printRoles(cmd.OutOrStdout(), cfg, p, rehearse)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file (YAML); see docs/configuration.md")
	cmd.Flags().StringVar(&part, "for", "controller", "who gets the role: controller, server or application")
	cmd.Flags().BoolVar(&rehearse, "rehearse", true, "with the scratch databases of 'rehearse', for a controller")
	cmd.Flags().BoolVar(&why, "why", false, "print each privilege, and what it is for, instead")
	return cmd
}

// printRoles writes a role for each cluster, told apart by their hosts.
func printRoles(out io.Writer, cfg config.Config, part mongostore.Part, rehearse bool) error {
	databases, scratches := map[string][]string{}, map[string][]string{}
	var clusters []string
	for _, db := range cfg.DBs {
		hosts := db.Hosts()
		if !slices.Contains(clusters, hosts) {
			clusters = append(clusters, hosts)
		}
		if !slices.Contains(databases[hosts], db.Database) {
			databases[hosts] = append(databases[hosts], db.Database)
			scratches[hosts] = append(scratches[hosts], rehearsal.ScratchName(db.Database))
		}
	}
	for _, hosts := range clusters {
		var scratch []string
		if rehearse && part == mongostore.Controller {
			scratch = scratches[hosts]
		}
		role := mongostore.RoleFor(part, "dbcontroller-"+string(part), databases[hosts], scratch)
		text, err := bson.MarshalExtJSONIndent(role, false, false, "", "  ")
		if err != nil {
			return err
		}
		if !json.Valid(text) {
			return fmt.Errorf("role of %s is no JSON", hosts)
		}
		if _, err := fmt.Fprintf(out, "// On %s:\ndb.getSiblingDB(\"admin\").runCommand(%s)\n", hosts, text); err != nil {
			return err
		}
	}
	return nil
}

func printWhy(out io.Writer, part mongostore.Part) error {
	where := map[mongostore.Scope]string{
		mongostore.OfDatabase: "databases", mongostore.OfScratch: "rehearsal", mongostore.OfCluster: "cluster",
		mongostore.OfOplog: "local.oplog.rs", mongostore.OfConfig: "config",
	}
	var b strings.Builder
	for _, p := range mongostore.Privileges() {
		if !slices.Contains(p.For, part) {
			continue
		}
		text := p.Why
		if p.Without != "" {
			text += "; without it: " + p.Without
		}
		fmt.Fprintf(&b, "%-25s %-15s %s\n", p.Action, where[p.Scope], text)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
