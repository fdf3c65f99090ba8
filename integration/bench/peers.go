package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller/integration/bench/figures"
	"dbcontroller/integration/subprocess"
)

// peer is another tool that copies a collection between clusters. It has to be there already.
type peer struct {
	name string
	// pipe are the commands that copy, each one's output the next one's input. then are commands
	// that follow once these run. In their arguments {source} and {target} stand for connection
	// strings, {database} and {collection} for what is copied, {into} for the database that it
	// goes to (a tool that cannot rename copies into {database} of the target), {dir} for an
	// empty folder.
	pipe, then [][]string
	renames    bool              // it copies into {into}
	files      map[string]string // written into {dir} before, with the same words replaced
	// exits: it has copied when all of the pipe have ended well; otherwise when the target has as
	// many records as the source.
	exits bool
	less  string // what it does less than this project
}

const noGuards = "no transformation, no fence, no comparison"

// peers are those known, by the order of their rows.
func peers() []peer {
	const sharedFiles = `mongo_urls = {source}
tunnel = direct
tunnel.address = {target}
sync_mode = full
transform.namespace = {database}.{collection}:{into}.{collection}
filter.namespace.white = {database}.{collection}
log.dir = {dir}
full_sync.reader.collection_parallel = 6
`
	return []peer{
		{
			name: "mongodump", exits: true, renames: true, less: noGuards + "; it does not follow changes: writes made meanwhile are missing",
			pipe: [][]string{
				{"mongodump", "--uri={source}", "--db={database}", "--collection={collection}", "--archive"},
				{"mongorestore", "--uri={target}", "--archive", "--nsFrom={database}.{collection}", "--nsTo={into}.{collection}", "--numInsertionWorkersPerCollection=4"},
			},
		},
		clusterSync("clustersync", nil, "; its defaults"),
		clusterSync("clustersync-50ms", []string{"--repl-worker-flush-interval=50ms"}, "; its flush interval lowered to 50 ms"),
		{
			name: "dsync", renames: true, less: noGuards,
			pipe: [][]string{{"dsync", "--mode", "InitialSync", "--ns", "{database}.{collection}:{into}.{collection}", "{source}", "{target}"}},
		},
		{
			name: "mongoshake", renames: true, less: noGuards,
			files: map[string]string{"collector.conf": sharedFiles},
			pipe:  [][]string{{"collector", "-conf={dir}/collector.conf"}},
		},
	}
}

func clusterSync(name string, flags []string, how string) peer {
	return peer{
		name: name, less: noGuards + "; it copies under the same name" + how,
		pipe: [][]string{append([]string{"pcsm", "--source={source}", "--target={target}"}, flags...)},
		then: [][]string{{"pcsm", "start", "--include-namespaces={database}.{collection}"}},
	}
}

func peerRow(p peer) string { return "peer." + p.name }

// peerRows are those of all peers, so that it is seen which did not run.
func peerRows() (rows []figures.Row) {
	for _, p := range peers() {
		rows = append(rows, figures.Row{
			Name: peerRow(p), Group: "Peers", Unit: "records/s", Title: "copy by " + p.name, Note: "What it does less: " + p.less + ".",
		})
	}
	return rows
}

// lacks is why a peer cannot run; empty if it can.
func (b *bench) lacks(p peer) string {
	for _, command := range slices.Concat(p.pipe, p.then) {
		if _, err := b.program(command[0]); err != nil {
			return command[0] + " is neither in PEERS_DIR nor on the PATH"
		}
	}
	return ""
}

// program is a peer's program: that in the folder of peers, or on the PATH.
func (b *bench) program(name string) (string, error) {
	if path := filepath.Join(b.peers, name); b.peers != "" {
		if _, err := exec.LookPath(path); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(name)
}

// peerScenarios are those of all peers; absent ones say so.
func peerScenarios() (out []scenario) {
	for _, p := range peers() {
		out = append(out, scenario{name: "peer " + p.name, rows: []string{peerRow(p)}, deadline: 3 * time.Minute, run: func(ctx context.Context, b *bench, round int) error {
			if b.absent(p) {
				return nil
			}
			d := b.small("main", b.records)
			if err := b.fill(ctx, d); err != nil {
				return err
			}
			took, err := b.peerCopy(ctx, p, d.name, d.records())
			if err != nil {
				return err
			}
			b.figure(peerRow(p), float64(b.records)/took.Seconds(), "%d records of %d B between two clusters, in the same rounds as copy.fixed.", b.records, b.size)
			b.comparePeer(took)
			return nil
		}})
	}
	return out
}

// absent notes what a row of a peer that is not here says.
func (b *bench) absent(p peer) bool {
	why := b.lacks(p)
	if why != "" {
		b.missing(peerRow(p), why+".")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.ContainsFunc(b.known, func(k figures.Peer) bool { return k.Name == p.name }) {
		b.known = append(b.known, figures.Peer{Name: p.name, Less: p.less, Absent: why})
	}
	return why != ""
}

// comparePeer sets the copies of this run beside the fastest peer so far.
func (b *bench) comparePeer(took time.Duration) {
	if len(b.mainCopy) == 0 {
		return
	}
	if b.fastest == 0 || took < b.fastest {
		b.fastest = took
	}
	for row, value := range map[string]func(copied) float64{
		"copy.fixed.peers": func(c copied) float64 { return b.fastest.Seconds() / c.copy },
		"ready.peers":      func(c copied) float64 { return c.ready / b.fastest.Seconds() },
	} {
		runs := make([]float64, len(b.mainCopy))
		for i, c := range b.mainCopy {
			runs[i] = round(value(c))
		}
		b.change(row, func(r *figures.Row) {
			r.Runs, r.Missing, r.Measured = runs, "", fmt.Sprintf("The runs of copy.fixed beside the fastest run of any peer, which took %.1f s.", b.fastest.Seconds())
		})
	}
}

// peerCopy copies a collection with a peer, from its start until it is copied.
func (b *bench) peerCopy(ctx context.Context, p peer, database string, records int) (time.Duration, error) {
	dir, err := os.MkdirTemp(b.dir, "peer")
	if err != nil {
		return 0, err
	}
	into := database
	if p.renames {
		into = scratch("peer")
	}
	words := strings.NewReplacer("{source}", b.from.server.URI(), "{target}", b.to.server.URI(), "{database}", database,
		"{collection}", kindName, "{into}", into, "{dir}", dir)
	for name, text := range p.files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(words.Replace(text)), 0o600); err != nil {
			return 0, err
		}
	}
	defer b.to.drop(ctx, into)
	begun := time.Now()
	ps, err := b.pipe(p.pipe, words, dir)
	defer func() {
		for _, p := range ps {
			p.Kill()
		}
	}()
	if err != nil {
		return 0, err
	}
	for _, command := range p.then {
		if err := b.follow(ctx, command, words); err != nil {
			return 0, err
		}
	}
	target := b.to.client.Database(into).Collection(kindName)
	if err := awaitPeer(ctx, p, ps, target, records); err != nil {
		return 0, fmt.Errorf("%s: %w: %s", p.name, err, subprocess.Tail(filepath.Join(dir, "log"), 2))
	}
	return time.Since(begun), nil
}

// pipe starts commands, each one's output the next one's input. What they say goes to a log.
func (b *bench) pipe(commands [][]string, words *strings.Replacer, dir string) (ps []*subprocess.Process, err error) {
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the processes have it
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
				_ = f.Close() // the process has its own
			}
		}
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
	return exec.Command(path, args...), nil //nolint:noctx // it is killed in the end
}

// follow runs a command that tells a started peer to begin, again until it is heard.
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

// awaitPeer waits until a peer has copied. One that ends before, or badly, has failed.
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
			if _, err := ps.Wait(); err != nil {
				return err
			}
			ended++
		}
		if has, err := target.EstimatedDocumentCount(ctx); err == nil {
			n = has
		} else if ctx.Err() == nil {
			return err
		}
		switch {
		case int(n) >= records && (!p.exits || ended == len(ps)):
			return nil
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
