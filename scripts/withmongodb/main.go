// Command withmongodb runs a command with a real MongoDB:
//
//	withmongodb [-nodes N] [-cache GB] [-dir FOLDER] [-v] -- COMMAND [ARG...]
//
// The command finds the connection string in DBCONTROLLER_TEST_MONGODB. All test binaries of a run
// thus share one replica set instead of each starting its own. withmongodb exits with the command's
// exit code, or 128 plus the number of the signal that ended it. It exits with 125 if it could not
// run the command.
//
// It forwards SIGINT and SIGTERM to the command's process group, and kills processes that are still
// there ten seconds later. When it exits, no process of the group and no server is left.
//
// It downloads nothing; scripts/fetch-mongodb does that.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"dbcontroller.dev/integration/localmongo"
)

const (
	// exitOwn is the exit code for our own failures, as in env(1) and nice(1).
	exitOwn = 125
	// grace is the time that a command has to end after a signal.
	grace = 10 * time.Second
)

func main() {
	signals := make(chan os.Signal, 2)
	// From the very start, so that a signal during the start of MongoDB leaves no server behind.
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	os.Exit(run(os.Args[1:], signals, os.Stderr))
}

func run(args []string, signals <-chan os.Signal, stderr io.Writer) int {
	flags := flag.NewFlagSet("withmongodb", flag.ContinueOnError)
	flags.SetOutput(stderr)
	nodes := flags.Int("nodes", 1, "members of the replica `set`; with more than one, a connection string is not used")
	cache := flags.Float64("cache", 0.5, "storage cache of each node in `GB`")
	dir := flags.String("dir", "", "`folder` for the data; empty: memory where there is room, or the temporary folder")
	verbose := flags.Bool("v", false, "say which MongoDB is used")
	if err := flags.Parse(args); err != nil {
		return exitOwn
	}
	if flags.NArg() == 0 {
		fmt.Fprintln(stderr, "withmongodb: no command given; usage: withmongodb [-nodes N] -- COMMAND [ARG...]")
		return exitOwn
	}
	options := localmongo.Options{Nodes: *nodes, CacheGB: *cache, Dir: *dir}
	if *verbose {
		options.Log = stderr
	}
	server, signalled, err := start(options, signals)
	// No command was run; the code is that of a program ended by the signal.
	if signalled != 0 {
		return 128 + int(signalled)
	}
	if err != nil {
		fmt.Fprintln(stderr, "withmongodb:", err)
		return exitOwn
	}
	code, err := command(flags.Args(), server.URI(), signals)
	if err != nil {
		fmt.Fprintln(stderr, "withmongodb:", err)
	}
	if err := server.Stop(context.Background()); err != nil {
		fmt.Fprintln(stderr, "withmongodb: stop MongoDB:", err)
		code = max(code, 1)
	}
	return code
}

// start starts the server unless a signal comes first.
func start(o localmongo.Options, signals <-chan os.Signal) (*localmongo.Server, syscall.Signal, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var server *localmongo.Server
	done := make(chan error, 1)
	go func() {
		var err error
		server, err = localmongo.Start(ctx, o)
		done <- err
	}()
	select {
	case err := <-done:
		return server, 0, err
	case s := <-signals:
		cancel()
		if err := <-done; err == nil {
			// The server came up at the same moment as the signal.
			_ = server.Stop(context.Background())
		}
		return nil, s.(syscall.Signal), nil
	}
}

// command runs args in a process group of its own. A signal from a terminal or a CI runner then
// reaches each process of the group exactly once.
func command(args []string, uri string, signals <-chan os.Signal) (int, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), localmongo.URIVariable+"="+uri)
	// Without a group of its own, a terminal's interrupt would reach the command twice.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return exitOwn, fmt.Errorf("run command: %w", err)
	}
	group := -cmd.Process.Pid
	// An error of kill means that no process is left to signal.
	defer func() { _ = syscall.Kill(group, syscall.SIGKILL) }()
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // ProcessState holds the outcome
		close(ended)
	}()
	var timeout <-chan time.Time
	for {
		select {
		case <-ended:
			return exitCode(cmd.ProcessState), nil
		case s := <-signals:
			_ = syscall.Kill(group, s.(syscall.Signal))
			// Further signals are forwarded, but do not extend the time.
			if timeout == nil {
				timeout = time.After(grace)
			}
		case <-timeout:
			_ = syscall.Kill(group, syscall.SIGKILL)
		}
	}
}

func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}
