// Command demo moves a real database to its next version on this machine, under traffic, and checks
// the result. The same binary runs the demo's processes: the dbcontroller of the sample services,
// with their transformers, and the host of MongoDB and etcd.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"dbcontroller.dev/config"
	"dbcontroller.dev/examples/sample"
	"dbcontroller.dev/internal/program/dbcontroller/cli"
	"dbcontroller.dev/internal/program/demo"
	"dbcontroller.dev/transform"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	opts := app.Options{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Move real databases to their next version on this machine, under traffic, and check the result",
		Long: "Move real databases to their next version on this machine: MongoDB and etcd are found or started,\n" +
			"two services move from etcd to MongoDB and an application's collection within MongoDB, with\n" +
			"controllers, servers and proxies as processes of their own. Clients write through both API versions,\n" +
			"and with the plain driver through two proxies. Cells run processes, of which one crashes in the\n" +
			"switch. At the end every acknowledged write and everything that must run is looked up. Without\n" +
			"--json a report for people goes to standard output; with it, that goes to standard error, and one\n" +
			"JSON object to standard output. The exit status is 1 when anything was lost, failed or different.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.Stdout, opts.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			opts.Transformers = func(cfg config.Config) (*transform.Registry, error) {
				registry, _, err := cli.Transformers(cfg, sample.Register)
				return registry, err
			}
			// The demo starts its controllers and hosts from this binary.
			exe, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find the own binary: %w", err)
			}
			opts.Binary = exe
			if opts.ServerBinary == "" {
				opts.ServerBinary = filepath.Join(filepath.Dir(exe), "server")
			}
			result, err := app.Run(cmd.Context(), opts)
			if err != nil {
				return err
			}
			return result.Err()
		},
	}
	f := cmd.Flags()
	f.BoolVar(&opts.JSON, "json", false, "print one JSON object on one line")
	f.IntVar(&opts.Records, "records", app.DefaultRecords, "documents in the application's collection")
	f.IntVar(&opts.Writers, "writers", app.DefaultWriters, "concurrent writers on each path: the API, and the plain driver")
	f.IntVar(&opts.Rate, "rate", app.DefaultRate, "writes a second over all writers, and as many reads")
	f.IntVar(&opts.Switches, "switches", 1, "how often to switch: to v2, back to v1, and so on; 2 is a round trip")
	f.Uint64Var(&opts.Seed, "seed", 1, "seed of what the clients do")
	f.BoolVar(&opts.Keep, "keep", false, "leave everything running afterwards and print how to look around")
	f.BoolVar(&opts.Hold, "hold", false, "begin the upgrade after 20 s, and keep everything open until Ctrl-C, to watch it in a browser")
	f.StringVar(&opts.ServerBinary, "server-binary", "", "the sample server's binary (default: 'server' next to this one)")
	cmd.AddCommand(hostCommand(), controllerCommand())
	return cmd
}

// hostCommand returns the command that keeps MongoDB and etcd running after a demo.
func hostCommand() *cobra.Command {
	var dir string
	var databases []string
	cmd := &cobra.Command{
		Use:    app.HostCommand + " --dir DIR",
		Short:  "Host MongoDB and etcd for a demo that leaves everything running",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return app.Host(cmd.Context(), dir, databases) },
	}
	cmd.Flags().StringVar(&dir, "dir", "", "folder of the demo")
	cmd.Flags().StringSliceVar(&databases, "databases", nil, "databases to drop at the end")
	return cmd
}

// controllerCommand returns dbcontroller with the transformers of the sample services. A service
// with transformers in Go builds its controller in the same way.
func controllerCommand() *cobra.Command {
	root := cli.Command(sample.Register)
	root.Use = app.ControllerCommand
	root.Short = "The dbcontroller of the sample services: all its commands, such as 'run' and 'get deployment'"
	return root
}
