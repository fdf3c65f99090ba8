package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"dbcontroller.dev/integration/bench/figures"
)

// peer is another tool that copies a collection between clusters. It must already be installed.
type peer struct {
	name string
	// pipe holds the commands of the copy, connected by pipes. then holds commands to run after
	// their start. In their arguments {source} and {target} stand for connection strings, and
	// {database} and {collection} for the copied collection. {into} is the target database, and
	// {dir} an empty folder. A tool that cannot rename copies into {database} of the target.
	pipe, then [][]string
	renames    bool              // copies into {into}
	files      map[string]string // written to {dir} beforehand, with the same replacements
	// exits: the copy is done when all commands of the pipe have succeeded. Otherwise it is done
	// when the target has as many records as the source.
	exits bool
	own   string // database in the target with the tool's own state; removed before each run
	less  string // features of this project that it lacks
}

const noGuards = "no transformation, no fence, no comparison"

// peers returns the known peers, in the order of their rows.
func peers() []peer {
	const sharedFiles = `conf.version = 10
id = mongoshake
mongo_urls = {source}
tunnel = direct
tunnel.address = {target}
tunnel.message = raw
sync_mode = full
transform.namespace = {database}.{collection}:{into}.{collection}
filter.namespace.white = {database}.{collection}
checkpoint.storage.db = mongoshake
checkpoint.storage.collection = ckpt_default
checkpoint.start_position = 1970-01-01T00:00:00Z
log.level = info
log.file = collector.log
log.dir = {dir}
full_sync.http_port = 9101
incr_sync.http_port = 9100
system_profile_port = 9200
full_sync.reader.collection_parallel = 6
full_sync.reader.write_document_parallel = 8
full_sync.reader.document_batch_size = 128
full_sync.reader.fetch_batch_size = 8192
full_sync.reader.parallel_thread = 1
full_sync.reader.parallel_index = _id
full_sync.create_index = none
incr_sync.mongo_fetch_method = oplog
incr_sync.shard_key = collection
incr_sync.worker = 8
incr_sync.tunnel.write_thread = 8
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
		pipe: [][]string{{"pcsm", "--source={source}", "--target={target}"}},
		then: [][]string{append([]string{"pcsm", "start", "--include-namespaces={database}.{collection}"}, flags...)},
		own:  "percona_clustersync_mongodb",
	}
}

func peerRow(p peer) string   { return "peer." + p.name }
func peerSpent(p peer) string { return "cpu.all." + p.name }

// peerRows returns the rows of all peers, so that the page also shows which ones did not run.
func peerRows() (rows []figures.Row) {
	for _, p := range peers() {
		rows = append(rows, figures.Row{
			Name: peerRow(p), Group: figures.Peers, Unit: "records/s", Title: "copy by " + p.name, Note: "What it does less: " + p.less + ".",
		}, figures.Row{Name: peerSpent(p), Group: figures.Peers, Unit: "µs/record", Title: "processor time of all processes for a record, by " + p.name})
	}
	return rows
}

// lacks returns the reason why a peer cannot run, or "".
func (b *bench) lacks(p peer) string {
	for _, command := range slices.Concat(p.pipe, p.then) {
		if _, err := b.program(command[0]); err != nil {
			return command[0] + " is neither in PEERS_DIR nor on the PATH"
		}
	}
	return ""
}

// program finds a peer's program, in the folder of peers or on the PATH.
func (b *bench) program(name string) (string, error) {
	// A version chosen for the benchmark goes before an installed one.
	if path := filepath.Join(b.peers, name); b.peers != "" {
		if _, err := exec.LookPath(path); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(name)
}

// peerScenarios returns the scenarios of all peers. The rows of absent ones say so.
func peerScenarios() (out []scenario) {
	for _, p := range peers() {
		out = append(out, scenario{name: "peer " + p.name, rows: []string{peerRow(p), peerSpent(p)}, deadline: 3 * time.Minute, run: func(ctx context.Context, b *bench, round int) error {
			// An absent peer is no failure: its row has the reason.
			if b.absent(p) {
				return nil
			}
			d := b.small("main", b.records)
			if err := b.fill(ctx, d); err != nil {
				return err
			}
			took, used, err := b.peerCopy(ctx, p, d.name, d.records())
			if err != nil {
				return err
			}
			b.spent(peerSpent(p), used, b.records, "Of "+p.name)
			b.figure(peerRow(p), float64(b.records)/took.Seconds(), "%d records of %d B between two clusters, in the same rounds as copy.fixed.", b.records, b.size)
			b.comparePeer(took)
			return nil
		}})
	}
	return out
}

// absent reports whether a peer is not installed, and notes that in its row.
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

// comparePeer compares the copies of this run with the fastest peer so far.
func (b *bench) comparePeer(took time.Duration) {
	// With -only, copy.fixed may not have run.
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
		// All runs are computed again, because a faster peer changes the earlier ones too.
		runs := make([]float64, len(b.mainCopy))
		for i, c := range b.mainCopy {
			runs[i] = round(value(c))
		}
		b.change(row, func(r *figures.Row) {
			r.Runs, r.Missing, r.Measured = runs, "", fmt.Sprintf("The runs of copy.fixed next to the fastest run of any peer, which took %.1f s.", b.fastest.Seconds())
		})
	}
}
