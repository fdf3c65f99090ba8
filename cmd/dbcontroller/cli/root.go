// Package cli is the command line of dbcontroller. Results go to standard output,
// diagnostics to standard error; what fails says what, where and what to do.
package cli

import (
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"dbcontroller/gen/dbcontroller/v1/dbcontrollerv1connect"
)

// Root is the whole command tree of the program dbcontroller.
func Root() *cobra.Command { return commands(Samples, demoCommand()) }

// commands is the tree of a program that knows some transformers.
func commands(register Register, more ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "dbcontroller",
		Short: "Move a live service's database to its next version, and back",
		Long: "dbcontroller keeps two databases, the old namespace and the new one: it copies and syncs every\n" +
			"record through transformers, holds writes for a moment, and switches. Start controllers with\n" +
			"'run', then 'begin-upgrade' and 'watch'. 'demo' shows it all on this machine.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(runCommand(register), lensCommand())
	root.AddCommand(more...)
	root.AddCommand(operatorCommands()...)
	return root
}

// serverEnv names the API when --server is not given.
const serverEnv = "DBCONTROLLER_SERVER"

// client is the connection of the operator commands to a controller's API.
type client struct {
	server string
	name   string
	json   bool
}

func (c *client) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.server, "server", "", "address of a controller's API, e.g. 127.0.0.1:7090 (default: $"+serverEnv+")")
	cmd.Flags().StringVar(&c.name, "name", "", "deployment, services/{service}/deployments/{region}; the controller's own when empty")
	cmd.Flags().BoolVar(&c.json, "json", false, "print JSON")
}

func (c *client) open() (dbcontrollerv1connect.DeploymentServiceClient, error) {
	server := c.server
	if server == "" {
		server = os.Getenv(serverEnv)
	}
	if server == "" {
		return nil, fmt.Errorf("no controller named: give --server HOST:PORT or set %s", serverEnv)
	}
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	return dbcontrollerv1connect.NewDeploymentServiceClient(http.DefaultClient, strings.TrimRight(server, "/")), nil
}
