// Package dbcontroller is the entry point for Go services. It moves the API and the data of a
// service to a new version while the service runs. A controller copies the data into the next
// version and keeps the copy in sync. A switch then makes that version active. Writes wait during
// the switch, usually for well under a second, and clients of both API versions are served before
// and after it.
//
// A Service value declares the versions of the service's API and data, and the transformers between
// neighbouring versions. A transformer turns records of one version into records of the next, and
// back. Two programs use the declaration, with one call each:
//
//	dbcontroller.Serve(service)      // a server: as many as you like
//	dbcontroller.Controller(service) // a controller, with all commands of an operator
//
// A program with a main function, an http.Server and a logger of its own calls New instead of Serve.
//
// # The server
//
// A server reads the configuration, connects to etcd and opens the databases that it needs. It
// serves the active version of the API and the older ones over the active version's data. Versions
// before a Discontinued one end with it. The next version can be read before the switch, over the
// data that is copied so far.
//
// The server holds writes during a switch. At the flip, the moment at which the new version becomes
// active, it replaces the handlers, and the held writes go to the new version.
//
// The server also runs the background work of the active version, counts the callers of each
// version, and serves health and metrics on an operator port. It shuts down gracefully on SIGINT
// and SIGTERM. The service implements none of this itself.
//
// # Where to begin
//
// Begin to read at Service. docs/library.md builds a service in an hour, and 'dbcontroller init
// service' generates one that runs.
//
// # Stability
//
// The names of this package and of the packages that docs/library.md lists are stable. All others
// may change with any version.
//
// # What this package does not own
//
// The package only wires others together. Package upgradestate owns the steps of a switch and their
// guarantees. Package vrunner owns the active version and the gate for writes. Package syncer
// copies and syncs the data.
package dbcontroller

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"dbcontroller.dev/internal/base/printable"
	controllercli "dbcontroller.dev/internal/program/dbcontroller/cli"
	serverapp "dbcontroller.dev/internal/program/server/app"
	servercli "dbcontroller.dev/internal/program/server/cli"
)

// Serve is the main function of a service's server. It returns after an orderly shutdown on SIGINT
// or SIGTERM. If the server cannot start or cannot go on, it prints one line with the reason and
// exits with code 1.
func Serve(s Service) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := ServeArgs(ctx, s, os.Args[1:])
	// os.Exit runs no deferred calls, so the signal handler is released here.
	stop()
	if err != nil {
		complain(os.Stderr, err)
		os.Exit(1)
	}
}

// complain prints the reason of an error on one line. A reason may quote a database, whose logins must
// not forge output.
func complain(w io.Writer, err error) {
	fmt.Fprintf(w, "%s: %s\n", program(), printable.Line(err.Error()))
}

// ServeArgs does what Serve does, with the arguments of a command line, for tests and for programs
// with further commands. It serves until ctx ends, which it does not report as an error.
func ServeArgs(ctx context.Context, s Service, args []string) error {
	short := fmt.Sprintf("Serve %s in all its versions, on the active version of its database", s.Name)
	cmd := servercli.Command(program(), short, func(ctx context.Context, f servercli.Flags) error {
		server, err := newServer(s, f.Flags, nil, serverapp.Options{Listen: f.Listen, OperatorListen: f.OperatorListen, Listening: s.Listening})
		if err != nil {
			return err
		}
		return server.app.Serve(ctx, server.connect)
	})
	if s.Flags != nil {
		own := flag.NewFlagSet(program(), flag.ContinueOnError)
		s.Flags(own)
		cmd.Flags().AddGoFlagSet(own)
	}
	return execute(ctx, cmd, args)
}

// Controller is the main function of a service's controller: the program dbcontroller with the
// service's transformers built in. Like Serve, it returns after an orderly shutdown or exits with
// code 1.
func Controller(s Service) { controllercli.Main(s.register) }

// ControllerArgs does what Controller does, with the arguments of a command line, for tests and for
// programs with further commands. The subcommand 'run' is the controller; it runs until ctx ends.
// Results go to stdout, and messages to stderr.
func ControllerArgs(ctx context.Context, s Service, args []string, stdout, stderr io.Writer) error {
	cmd := controllercli.Command(s.register)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	return execute(ctx, cmd, args)
}

// execute runs a command with these arguments and no others.
func execute(ctx context.Context, cmd *cobra.Command, args []string) error {
	// Without any, cobra takes those of the process.
	if args == nil {
		args = []string{}
	}
	cmd.SetArgs(args)
	return cmd.ExecuteContext(ctx)
}

// VersionHeader is the response header that names the version whose handlers answered. A server
// sets it in each response.
const VersionHeader = serverapp.VersionHeader

func program() string { return filepath.Base(os.Args[0]) }
