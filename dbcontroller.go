// Package dbcontroller is how a service in Go uses the library: it says in a Service which
// versions of its API and its data there are, and what leads from each to the next. From
// that come two programs of one call each,
//
//	dbcontroller.Serve(service)      // a server: as many as you like
//	dbcontroller.Controller(service) // a controller, with all commands of an operator
//
// A server reads the configuration, finds etcd, opens the databases that are needed, serves
// both versions of the API on whichever version is active, holds writes at a switch, changes
// the handlers at the flip, runs the background work of the active version, counts who calls
// which version, and has an operator port for health and metrics. It ends in order when it
// is told to. Nothing of that is written by a service.
//
// docs/library.md builds a service in an hour, 'dbcontroller init service' writes one that
// runs. The names of this package are stable, and so are those of the packages that
// docs/library.md lists; all others may change with any version.
//
// The package wires, and decides nothing: what a switch is, who may write and which version
// is active is said by the packages below it.
package dbcontroller

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	controllercli "dbcontroller.dev/cmd/dbcontroller/cli"
	serverapp "dbcontroller.dev/cmd/server/app"
	servercli "dbcontroller.dev/cmd/server/cli"
)

// Serve is the main function of a service's server. It returns when the process was told to
// end and has ended in order, and exits with 1 and one line about what is wrong if it cannot
// start or go on.
func Serve(s Service) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := ServeCommand(s).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", program(), err)
		os.Exit(1)
	}
}

// ServeCommand is the command that Serve runs, for a program with further commands and for
// tests: it serves until the context it is executed with ends, which is no error.
func ServeCommand(s Service) *cobra.Command {
	short := fmt.Sprintf("Serve %s in all its versions, on the active version of its database", s.Name)
	cmd := servercli.Command(program(), short, s.Server(), serverapp.Options{Listening: s.Listening})
	cmd.PreRunE = func(*cobra.Command, []string) error { return s.check() }
	if s.Flags != nil {
		s.Flags(cmd.Flags())
	}
	return cmd
}

// Controller is the main function of a service's controller: the program dbcontroller, with
// the transformers of the service in it. Like Serve it returns or exits.
func Controller(s Service) { controllercli.Main(s.register) }

// ControllerCommand is the command that Controller runs, with all its subcommands, for tests:
// its subcommand 'run' is the controller, which works until the context ends.
func ControllerCommand(s Service) *cobra.Command { return controllercli.Command(s.register) }

// VersionHeader names, in each response of a server, the version whose handlers answered.
const VersionHeader = serverapp.VersionHeader

func program() string { return filepath.Base(os.Args[0]) }
