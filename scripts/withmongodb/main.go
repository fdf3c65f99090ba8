// Command withmongodb runs a command with a real MongoDB next to it:
//
//	withmongodb [-nodes N] [-cache GB] [-v] -- COMMAND [ARG...]
//
// The command finds the connection string in DBCONTROLLER_TEST_MONGODB, so that
// all test binaries of a run share one replica set instead of starting their
// own. It ends with the command's exit code (128 plus the number for a signal)
// or with 125 when it could not run the command at all.
//
// SIGINT and SIGTERM go on to the command's process group; what has not ended
// ten seconds later is killed. However the command ends, nothing of its process
// group and no server is left.
//
// It does not fetch anything; that is scripts/fetch-mongodb.
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
	// exitOwn is the exit code for our own failures, as of env(1) and nice(1).
	exitOwn = 125
	// grace is how long a signalled command may take to end by itself.
	grace = 10 * time.Second
)

func main() {
	signals := make(chan os.Signal, 2)
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
			// It was up at that very moment.
			_ = server.Stop(context.Background())
		}
		return nil, s.(syscall.Signal), nil
	}
}

// command runs args in a process group of its own, so that signals reach all of
// it exactly once, whether they come from a terminal or from a CI runner.
func command(args []string, uri string, signals <-chan os.Signal) (int, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), localmongo.URIVariable+"="+uri)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return exitOwn, fmt.Errorf("run command: %w", err)
	}
	group := -cmd.Process.Pid
	// Errors of kill mean that nobody is left to be signalled.
	defer func() { _ = syscall.Kill(group, syscall.SIGKILL) }()
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the outcome is in ProcessState
		close(ended)
	}()
	var timeout <-chan time.Time
	for {
		select {
		case <-ended:
			return exitCode(cmd.ProcessState), nil
		case s := <-signals:
			_ = syscall.Kill(group, s.(syscall.Signal))
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
