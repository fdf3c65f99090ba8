package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/integration/subprocess"
)

// peerCopy copies a collection with a peer. The time counts from the start of the peer.
func (b *bench) peerCopy(ctx context.Context, p peer, database string, records int) (took time.Duration, used spent, err error) {
	dir, err := os.MkdirTemp(b.dir, "peer")
	if err != nil {
		return 0, used, err
	}
	into := database
	// Only a peer that renames can have a database of its own; all others reuse the source's name.
	if p.renames {
		into = scratch("peer")
	}
	words := strings.NewReplacer("{source}", b.from.server.URI(), "{target}", b.to.server.URI(), "{database}", database,
		"{collection}", kindName, "{into}", into, "{dir}", dir)
	for name, text := range p.files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(words.Replace(text)), 0o600); err != nil {
			return 0, used, err
		}
	}
	defer b.to.drop(ctx, into)
	if p.own != "" {
		// With the state of an earlier run, a peer would resume instead of copying.
		b.to.drop(ctx, p.own)
	}
	before, begun := b.spentNow(b.from, b.to, usage(syscall.RUSAGE_CHILDREN)), time.Now()
	ps, err := b.pipe(p.pipe, words, dir)
	kill := func() {
		for _, p := range ps {
			p.Kill()
		}
	}
	defer kill()
	if err != nil {
		return 0, used, err
	}
	// The peer may need a moment before it accepts a command.
	for _, command := range p.then {
		if err := b.follow(ctx, command, words); err != nil {
			return 0, used, err
		}
	}
	target := b.to.client.Database(into).Collection(kindName)
	if err := awaitPeer(ctx, p, ps, target, records); err != nil {
		return 0, used, fmt.Errorf("%s: %w: %s", p.name, err, subprocess.Tail(filepath.Join(dir, "log"), 2))
	}
	took, used = time.Since(begun), b.spentNow(b.from, b.to, 0)
	// Only children that have been waited for count in their processor time.
	kill()
	used.client = usage(syscall.RUSAGE_CHILDREN)
	return took, used.since(before), nil
}

// pipe starts commands connected by pipes. Their error output goes to a log.
func (b *bench) pipe(commands [][]string, words *strings.Replacer, dir string) (ps []*subprocess.Process, err error) {
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the processes have their own descriptors
	var in *os.File
	for i, command := range commands {
		cmd, err := b.command(command, words)
		if err != nil {
			return ps, err
		}
		if cmd.Dir, cmd.Stderr, cmd.Stdout = dir, log, io.Writer(log); in != nil {
			cmd.Stdin = in
		}
		var out *os.File
		next := (*os.File)(nil)
		if i < len(commands)-1 {
			if next, out, err = os.Pipe(); err != nil {
				return ps, err
			}
			cmd.Stdout = out
		}
		p, err := subprocess.Start(cmd)
		for _, f := range []*os.File{in, out} {
			if f != nil {
				_ = f.Close() // the process has its own descriptor
			}
		}
		// The next command reads from this end of the pipe.
		if in = next; err != nil {
			return ps, err
		}
		ps = append(ps, p)
	}
	return ps, nil
}

func (b *bench) command(command []string, words *strings.Replacer) (*exec.Cmd, error) {
	path, err := b.program(command[0])
	if err != nil {
		return nil, err
	}
	args := make([]string, len(command)-1)
	for i, a := range command[1:] {
		args[i] = words.Replace(a)
	}
	return exec.Command(path, args...), nil //nolint:noctx // killed at the end
}

// follow runs a command that starts a peer's copy, and retries until the peer accepts it.
func (b *bench) follow(ctx context.Context, command []string, words *strings.Replacer) error {
	const patience = 10 * time.Second
	for begun := time.Now(); ; rest(ctx, 100*time.Millisecond) {
		cmd, err := b.command(command, words)
		if err != nil {
			return err
		}
		p, err := subprocess.Start(cmd)
		if err != nil {
			return err
		}
		select {
		case <-p.Done():
		case <-ctx.Done():
			p.Kill()
			return ctx.Err()
		}
		if _, err = p.Wait(); err == nil {
			return nil
		}
		if time.Since(begun) > patience {
			return fmt.Errorf("%s: %w", strings.Join(command[:min(2, len(command))], " "), err)
		}
	}
}

// awaitPeer waits until a peer has copied. A peer that ends early or with an error has failed.
func awaitPeer(ctx context.Context, p peer, ps []*subprocess.Process, target *mongo.Collection, records int) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var n int64
	for {
		ended := 0
		for _, ps := range ps {
			if ps.Running() {
				continue
			}
			// A peer that ends with an error may still have copied all records, and yet it failed.
			if _, err := ps.Wait(); err != nil {
				return err
			}
			ended++
		}
		if has, err := target.EstimatedDocumentCount(ctx); err == nil {
			n = has
		} else if !errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil { // the driver gives up shortly before ctx ends
			return err
		}
		switch {
		case int(n) >= records && (!p.exits || ended == len(ps)):
			return nil
		// All processes ended, and records are missing.
		case ended == len(ps):
			return fmt.Errorf("it has ended with %d of %d records", n, records)
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), fmt.Errorf("%d of %d records are there", n, records))
		case <-tick.C:
		}
	}
}
