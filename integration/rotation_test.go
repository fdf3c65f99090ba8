package integration_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/config"
	"dbcontroller.dev/examples/bbs"
	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

const (
	// held is in every record of a process, and in none of what stays readable.
	held = "docker:///busybox"
	// plainCanary is in a document that nobody encrypts: who looks for text in files finds it.
	plainCanary = "docker:///canary"
)

// rotationRecords are those that a rotation goes over. With ROTATION_RECORDS=100000 it is
// measured, next to measuredWrites a second, and has longer for it.
func rotationRecords(t *testing.T) (n int, measured bool, within time.Duration) {
	text := os.Getenv("ROTATION_RECORDS")
	if text == "" {
		return 1500, false, 4 * patience
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n, true, 15 * patience
}

// TestRotation takes a service whose records are encrypted in MongoDB to another key under traffic,
// and kills the controller in the middle, and then to a version in etcd that has keys of its own,
// which takes one record only after it was corrected. No call fails, no record is lost, all are
// under the keys that they should be under, and what they hold is in no file of MongoDB or etcd,
// where checkpoints and parked records are, too, nor in a log.
func TestRotation(t *testing.T) {
	t.Parallel()
	n, measured, within := rotationRecords(t)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	dir := t.TempDir()
	server := start(ctx, t, localmongo.Options{Dir: dir, CheckpointEvery: 1})
	etcd := startSomeMembers(ctx, t, 1, nil)
	s := newSystem(ctx, t, settings{
		kinds: "[]", uris: map[string]string{"v1": server.URI()}, etcd: etcd.endpoints(),
		records:    map[string]string{"v2": inEtcd(etcd.endpoints()[0], "")},
		encryption: map[string]string{"v1": keysSection("a001", "a001", "a002"), "v2": keysSection("b001", "b001")},
	})
	s.makeKeys("a001", "a002", "b001")
	r := &rotating{system: s, traffic: &traffic{system: s, processes: newLedger("process"), packages: newLedger("package"), alone: true}}
	first, second := s.controller("first", breakPoint{}).ready(ctx), s.controller("second", breakPoint{}).ready(ctx)
	a, b := s.server("a", 0).ready(ctx), s.server("b", 0).ready(ctx)
	x := &crossing{system: s, traffic: r.traffic}
	x.fillProcesses(ctx, a, n)
	r.traffic.start(ctx, a, b)
	if measured {
		r.hammer(ctx)
	}
	r.traffic.awaitWrites(ctx, "v1", n+50)
	r.wantUnder(ctx, "v1", "a001")

	s.pace(ctx, 1) // first pages are read at once, and the next ones are minutes away
	since, before := time.Now(), r.traffic.processes.count("v1")
	s.edit(func(text string) string { return strings.Replace(text, "active: a001", "active: a002", 1) })
	r.awaitChanged(ctx)
	if st := r.state(ctx, "v1"); st.Promised() != "" || st.Key != "a002" {
		t.Errorf("in the middle the mark says %+v", st)
	}
	r.awaitShown(ctx, "rotate-keys to a002 over ", "v1: written under a002, records may be under a001, a002: NOT PROMISED")
	leader := first
	if s.leader(ctx) == "second" {
		leader = second
	}
	s.kill(leader)
	third := s.controller("third", breakPoint{}).ready(ctx)
	if measured {
		s.pace(ctx, 0)
	} else {
		s.pace(ctx, int32(n/6))
	}
	r.awaitPromise(ctx, "v1", "a002")
	took := time.Since(since)
	r.awaitShown(ctx, "v1: every record is under a002\n")
	t.Logf("%d records were brought under another key in %s, beside %.0f writes/s", n, took.Round(time.Millisecond),
		float64(r.traffic.processes.count("v1")-before)/took.Seconds())
	s.pace(ctx, 0)
	r.wantUnder(ctx, "v1", "a002")

	// Both write records into scratch collections and databases, whose writes stay in the oplog.
	api, _ := second.addresses()
	if leader == second {
		api, _ = third.addresses()
	}
	for _, try := range [][]string{{"plan"}, {"rehearse", "--sample", "50"}} {
		if res := execute(ctx, t, nil, append(try, "--server", api)...); res.code != 0 {
			t.Errorf("%v: exit code %d: %s%s", try, res.code, res.stdout, res.stderr)
		}
	}
	const refused = "refused"
	r.put(ctx, "a002", refused, bson.D{{Key: "_id", Value: refused}, {Key: "process_guid", Value: held + " of a refused record"}})
	s.begin(ctx)
	said := ""
	eventually(ctx, t, "the record is parked", func() error {
		parked, err := s.record.ParkedNow(ctx)
		if err != nil || len(parked) != 1 || parked[0].Key != refused {
			return fmt.Errorf("%+v, %w", parked, cmp.Or(err, errors.New("it is not")))
		}
		said = parked[0].Error
		return nil
	})
	if want := "process_guid is "; !strings.Contains(said, want) {
		t.Errorf("it is parked for %q, want %q", said, want)
	}
	r.put(ctx, "a002", refused, nil)
	s.await(ctx, "the flip", flipped("v2"))
	r.traffic.awaitWrites(ctx, "v2", 20)
	s.awaitSync(ctx)
	r.awaitShown(ctx, "v2: every record is under b001\n")
	r.wantUnder(ctx, "v1", "a002")
	d, err := s.record.Get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r.traffic.settle(ctx, d)
	x.same(ctx)
	shown := execute(ctx, t, s.env, "keys", "show", "--config", s.config, "--count")
	for _, want := range []string{"under a002", "under b001", "a002: ", "b001: "} {
		if shown.code != 0 || !strings.Contains(shown.stdout, want) {
			t.Errorf("keys show says %+v, want %q in it", shown, want)
		}
	}
	r.wantNowhere(ctx, etcd.clients[0], map[string]string{"MongoDB": dir, "etcd": etcd.members[0].Dir},
		append([]*child{first, second, third}, r.traffic.servers...))
}

// TestRotationOnAndOff turns encryption of records in etcd on, under traffic and without a
// restart, and off again.
func TestRotationOnAndOff(t *testing.T) {
	t.Parallel()
	raceProcesses(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	records := startSomeMembers(ctx, t, 1, nil)
	s := newSystem(ctx, t, settings{kinds: "[]", records: map[string]string{"v1": inEtcd(records.endpoints()[0], "")}})
	s.encrypted = true
	s.makeKeys("a001")
	r := &rotating{traffic: &traffic{system: s, processes: newLedger("process"), packages: newLedger("package"), alone: true}}
	controller := s.controller("controller", breakPoint{}).ready(ctx)
	a := s.server("a", 0).ready(ctx)
	(&crossing{system: s, traffic: r.traffic}).fillProcesses(ctx, a, 300)
	r.traffic.start(ctx, a)
	r.traffic.awaitWrites(ctx, "v1", 320)
	plain := func() (n int) {
		t.Helper()
		res, err := records.clients[0].Get(ctx, "\x00", clientv3.WithFromKey())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range res.Kvs {
			if bytes.Contains(kv.Value, []byte(held)) {
				n++
			}
		}
		return n
	}
	if plain() < 300 {
		t.Fatalf("%d records are seen in etcd", plain())
	}
	const etcd = "backend: etcd, apiVersion: v1"
	// Nobody with a key has said yet that records are plain: a key that becomes active is refused,
	// and changes nothing, until a controller with active: off has.
	s.edit(func(text string) string {
		return strings.Replace(text, etcd, etcd+", encryption: "+keysSection("off", "a001"), 1)
	})
	eventually(ctx, t, "the mark has proof that records are plain", func() error {
		if !strings.Contains(controller.output(), "the mark now proves that records are plain") {
			return errors.New("the controller does not say so")
		}
		return nil
	})
	for _, step := range []struct{ from, edit, to string }{
		{"active: off", "active: a001", "a001"},
		{"active: a001", "active: off", "off"},
	} {
		s.edit(func(text string) string { return strings.Replace(text, step.from, step.edit, 1) })
		eventually(ctx, t, "all records are under "+step.to, func() error {
			d, err := s.record.Get(ctx)
			if err != nil {
				return err
			}
			for _, e := range d.History {
				if e.Detail == upgradestate.RotateKeys+" to "+step.to && strings.HasPrefix(e.Outcome, "done; ") {
					return nil
				}
			}
			return fmt.Errorf("update %+v, history %+v", d.Update, d.History)
		})
		if n := plain(); step.to == "off" && n < 300 || step.to != "off" && n > 0 {
			t.Errorf("under %s, %d records can be read in etcd", step.to, n)
		}
		r.traffic.awaitWrites(ctx, "v1", r.traffic.processes.count("v1")+10)
	}
	r.traffic.finish()
	v1, _, err := r.traffic.client.list(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.report(r.traffic.processes.check("the v1 API", v1))
	s.report(r.traffic.processes.failures())
}

// keysSection is an encryption section in one line.
func keysSection(active string, names ...string) string {
	var keys []string
	for _, name := range names {
		keys = append(keys, fmt.Sprintf("{name: %s, file: %s.key}", name, name))
	}
	return fmt.Sprintf("{keys: [%s], active: %s}", strings.Join(keys, ", "), active)
}

// makeKeys writes keys next to the configuration.
func (s *system) makeKeys(names ...string) {
	s.t.Helper()
	for _, name := range names {
		key := make([]byte, sealed.KeySize)
		if _, err := rand.Read(key); err != nil {
			s.t.Fatal(err)
		}
		s.write(name+".key", string(config.EncodeKey(key)))
	}
}

type rotating struct {
	*system
	traffic *traffic
}

const measuredWrites = 500

// hammer adds clients that make so many writes a second, as far as the machine does.
func (r *rotating) hammer(ctx context.Context) {
	const clients = 64
	const calls = measuredWrites * 10 / 8 // some of them read
	ctx, cancel := context.WithCancel(ctx)
	stop := r.traffic.stop
	r.traffic.stop = func() { cancel(); stop() }
	for i := range clients {
		w := &bbsWriter{client: r.traffic.client, ledger: r.traffic.processes, rng: mathrand.New(mathrand.NewPCG(4, uint64(i))), number: 100 + i}
		r.traffic.wg.Go(func() {
			next := time.NewTicker(time.Second * clients / calls)
			defer next.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-next.C:
				}
				if w.op++; len(w.live) < 20 {
					w.create(ctx)
				} else {
					w.step(ctx)
				}
			}
		})
	}
}

// state is what the database itself holds of a version's keys.
func (r *rotating) state(ctx context.Context, version string) sealed.State {
	r.t.Helper()
	var st sealed.State
	r.withDatabase(ctx, version, func(_ *mongostore.Namespace, notes identity.Notes) (err error) {
		st, err = notes.State(ctx)
		return err
	})
	return st
}

// withDatabase opens a version's database, and what is noted in it of its keys.
func (r *rotating) withDatabase(ctx context.Context, version string, do func(*mongostore.Namespace, identity.Notes) error) {
	r.t.Helper()
	ns, err := mongostore.Open(ctx, mongostore.Config{URI: r.uris[version], Database: r.db[version].Name()})
	if err != nil {
		r.t.Fatal(err)
	}
	err = do(ns, identity.NotesOf(ns, record.Owner{Deployment: r.name, Version: version}))
	if err := errors.Join(err, ns.Close(context.WithoutCancel(ctx))); err != nil {
		r.t.Fatal(err)
	}
}

// awaitChanged waits until a rotation has written some records.
func (r *rotating) awaitChanged(ctx context.Context) {
	r.t.Helper()
	eventually(ctx, r.t, "the rotation is in the middle", func() error {
		d, err := r.apis()[0].GetDeployment(ctx, connect.NewRequest(&dbv1.GetDeploymentRequest{Name: r.name}))
		if err != nil {
			return err
		}
		if u := d.Msg.GetUpdate(); u.GetChanged() == 0 {
			return fmt.Errorf("%v", u)
		}
		return nil
	})
}

// awaitShown waits until the command that people look with says all of texts.
func (r *rotating) awaitShown(ctx context.Context, texts ...string) {
	r.t.Helper()
	eventually(ctx, r.t, "get deployment shows the keys", func() error {
		r.mu.Lock()
		live := slices.Clone(r.controllers)
		r.mu.Unlock()
		for _, c := range live {
			api, _ := c.addresses()
			shown := execute(ctx, r.t, nil, "get", "deployment", "--server", api)
			for _, want := range texts {
				if shown.code != 0 || !strings.Contains(shown.stdout, want) {
					return fmt.Errorf("%s shows %+v, want %q in it", c.name, shown, want)
				}
			}
		}
		return nil
	})
}

func (r *rotating) awaitPromise(ctx context.Context, version, key string) {
	r.t.Helper()
	eventually(ctx, r.t, "the promise of "+key, func() error {
		if st := r.state(ctx, version); st.Promised() != key {
			return fmt.Errorf("%+v", st)
		}
		return pauseFor(ctx, 200*time.Millisecond)
	})
}

// wantUnder checks that every record of a version is under one key, and nothing readable.
func (r *rotating) wantUnder(ctx context.Context, version, key string) {
	r.t.Helper()
	d, err := r.record.Get(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	ns, _ := d.Namespace(version)
	under := map[string]int{}
	for _, k := range ns.Kinds {
		cursor, err := r.db[version].Collection(k.Physical).Find(ctx, bson.D{{Key: "_dbc.x", Value: bson.D{{Key: "$ne", Value: true}}}})
		if err != nil {
			r.t.Fatal(err)
		}
		for cursor.Next(ctx) {
			under[sealed.Under(cursor.Current)]++
			elems, _ := cursor.Current.Elements()
			for _, e := range elems {
				if !slices.Contains([]string{"_id", sealed.Field, record.ReservedField}, e.Key()) {
					r.t.Fatalf("a record of %s shows its field %s", k.Kind, e.Key())
				}
			}
		}
		if err := errors.Join(cursor.Err(), cursor.Close(ctx)); err != nil {
			r.t.Fatal(err)
		}
	}
	if len(under) != 1 || under[key] == 0 {
		r.t.Errorf("records of %s are under %v, want %s alone", version, under, key)
	}
}

// wantNowhere looks for what records hold where it must not be. A plain document in each engine
// proves that it would be found there.
func (r *rotating) wantNowhere(ctx context.Context, etcd *clientv3.Client, dirs map[string]string, processes []*child) {
	t := r.t
	t.Helper()
	if _, err := r.db["v1"].Collection("plain").InsertOne(ctx, bson.D{{Key: "text", Value: plainCanary}}); err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Put(ctx, "plain", plainCanary); err != nil {
		t.Fatal(err)
	}
	look := func(where string, text []byte) (plain bool) {
		if bytes.Contains(text, []byte(held)) {
			t.Errorf("what records hold is in %s", where)
		}
		return bytes.Contains(text, []byte(plainCanary))
	}
	for engine, dir := range dirs {
		eventually(ctx, t, "the plain document is in a file of "+engine, func() error {
			found := false
			err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
				if err != nil || !e.Type().IsRegular() {
					return nil //nolint:nilerr // files come and go
				}
				if text, err := os.ReadFile(path); err == nil && look(path, text) {
					found = true
				}
				return nil
			})
			if err == nil && !found {
				err = errors.New("it is in none")
			}
			return errors.Join(err, pauseFor(ctx, 200*time.Millisecond))
		})
	}
	kvs, _, err := r.etcd.List(ctx, "")
	if err != nil || len(kvs) == 0 {
		t.Fatalf("%d keys in etcd, %v", len(kvs), err)
	}
	for _, kv := range kvs {
		look("etcd "+kv.Key, kv.Value)
	}
	for _, c := range processes {
		look("the log of "+c.name, []byte(c.output()))
	}
}

// put writes a record of v1 past all servers, or deletes it.
func (r *rotating) put(ctx context.Context, key, name string, doc bson.D) {
	r.t.Helper()
	d, err := r.record.Get(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	toks := syncer.Tokens(d, "v1")
	m := record.Mutation{Kind: bbs.KindDesiredLRPs, Key: record.StringKey(name)}
	if doc != nil {
		if m.Doc, err = bson.Marshal(doc); err != nil {
			r.t.Fatal(err)
		}
	}
	read, err := config.Encryption{Keys: []config.KeyFile{{Name: key, Path: filepath.Join(r.dir, key+".key")}}}.Read()
	if err != nil {
		r.t.Fatal(err)
	}
	keys, err := sealed.NewKeys(key, sealed.Key{Name: key, Bytes: read[0]})
	if err != nil {
		r.t.Fatal(err)
	}
	r.withDatabase(ctx, "v1", func(ns *mongostore.Namespace, notes identity.Notes) error {
		return sealed.New("v1", func() *sealed.Keys { return keys }, notes).Client(ns.Client()).Write(ctx, toks, []record.Mutation{m})
	})
}
