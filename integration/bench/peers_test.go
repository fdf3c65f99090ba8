package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/bench/figures"
	"dbcontroller.dev/integration/localmongo/mongotest"
)

// fakeVariable tells this program to be a program of a peer.
const fakeVariable = "DBCONTROLLER_BENCH_FAKE"

func TestMain(m *testing.M) {
	if name := os.Getenv(fakeVariable); name != "" {
		if err := fake(name, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	mongotest.Main(m)
}

// fake is what the programs of the peers in these tests do: dump URI DB, restore URI DB SKIP, and
// daemon, which copies when the file that begin makes is there and then stays.
func fake(name string, args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if name == "begin" {
		return os.WriteFile(args[0], nil, 0o600)
	}
	client, err := mongo.Connect(options.Client().ApplyURI(args[0]))
	if err != nil {
		return err
	}
	col := client.Database(args[1]).Collection(kindName)
	switch name {
	case "dump":
		return dump(ctx, col, os.Stdout)
	case "restore":
		return restore(ctx, col, os.Stdin, args[2])
	default:
		for {
			if _, err := os.Stat(args[3]); err == nil {
				break
			}
			rest(ctx, 10*time.Millisecond)
		}
		r, w := io.Pipe()
		go func() { _ = w.CloseWithError(dump(ctx, col, w)) }()
		if err := restore(ctx, client.Database(args[2]).Collection(kindName), r, "0"); err != nil {
			return err
		}
		<-ctx.Done() // as tools that follow changes do
		return nil
	}
}

func dump(ctx context.Context, col *mongo.Collection, w io.Writer) error {
	cur, err := col.Find(ctx, bson.D{})
	if err != nil {
		return err
	}
	for cur.Next(ctx) {
		line, err := bson.MarshalExtJSON(cur.Current, true, false)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s\n", line); err != nil {
			return err
		}
	}
	return cur.Err()
}

// restore leaves out the record of an id.
func restore(ctx context.Context, col *mongo.Collection, r io.Reader, skip string) error {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		var doc bson.D
		if err := bson.UnmarshalExtJSON(lines.Bytes(), true, &doc); err != nil {
			return err
		}
		if fmt.Sprint(doc[0].Value) == skip {
			continue
		}
		if _, err := col.InsertOne(ctx, doc); err != nil {
			return err
		}
	}
	return nil
}

// peerBench is a bench of one server, with a folder of fake programs.
func peerBench(t *testing.T) (b *bench, database string) {
	t.Helper()
	_, database = mongotest.Database(t)
	c := &cluster{mongotest.Server(t), mongotest.Client(t)}
	b = &bench{settings: settings{peers: t.TempDir()}, dir: t.TempDir(), from: c, to: c}
	b.rows = append(figures.Rows(), peerRows()...)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dump", "restore", "daemon", "begin"} {
		script := fmt.Sprintf("#!/bin/sh\n%s=%s exec '%s' \"$@\"\n", fakeVariable, name, self)
		if err := os.WriteFile(filepath.Join(b.peers, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	docs := make([]any, peerRecords)
	for i := range docs {
		docs[i] = bson.D{{Key: "_id", Value: i + 1}}
	}
	if _, err := c.client.Database(database).Collection(kindName).InsertMany(t.Context(), docs); err != nil {
		t.Fatal(err)
	}
	return b, database
}

const peerRecords = 100

func piped(skip string) peer {
	return peer{name: "piped", exits: true, renames: true, pipe: [][]string{{"dump", "{source}", "{database}"}, {"restore", "{target}", "{into}", skip}}}
}

func TestPeerCopies(t *testing.T) {
	t.Parallel()
	b, database := peerBench(t)
	daemon := peer{
		name: "daemon", renames: true,
		pipe: [][]string{{"daemon", "{source}", "{database}", "{into}", "{dir}/begun"}},
		then: [][]string{{"begin", "{dir}/begun"}},
	}
	for _, p := range []peer{piped("0"), daemon} {
		if why := b.lacks(p); why != "" {
			t.Errorf("%s lacks %s", p.name, why)
		}
		took, _, err := b.peerCopy(t.Context(), p, database, peerRecords)
		if err != nil || took <= 0 {
			t.Errorf("%s took %v: %v", p.name, took, err)
		}
	}
}

// A peer that ends before it has copied everything, fails, or never gets there, has failed.
func TestPeerFails(t *testing.T) {
	t.Parallel()
	b, database := peerBench(t)
	fails := peer{name: "fails", exits: true, renames: true, pipe: [][]string{{"dump", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100", "{database}"}, {"restore", "{target}", "{into}", "0"}}}
	for _, tc := range []struct {
		peer     peer
		patience time.Duration
		want     string
	}{
		{piped("7"), time.Minute, "it has ended with 99 of 100 records"},
		{fails, time.Minute, "server selection"},
		{peer{name: "idle", renames: true, pipe: [][]string{{"daemon", "{source}", "{database}", "{into}", "{dir}/never"}}}, 2 * time.Second, "0 of 100 records are there"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), tc.patience)
		_, _, err := b.peerCopy(ctx, tc.peer, database, peerRecords)
		cancel()
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.peer.name, err, tc.want)
		}
	}
}

func TestAbsentPeer(t *testing.T) {
	t.Parallel()
	b := &bench{}
	b.rows = append(figures.Rows(), peerRows()...)
	p := peers()[0]
	p.pipe = [][]string{{"no-such-program-of-any-peer"}}
	for range 2 { // rounds
		if !b.absent(p) {
			t.Fatal("a peer without a program is there")
		}
	}
	f := b.file()
	r, _ := f.Row(peerRow(p))
	if want := "no-such-program-of-any-peer is neither in PEERS_DIR nor on the PATH."; r.Missing != want || r.Met != nil {
		t.Errorf("the row says %q, want %q", r.Missing, want)
	}
	if len(f.Peers) != 1 || f.Peers[0].Absent == "" || f.Peers[0].Less == "" {
		t.Errorf("the document says of peers: %+v", f.Peers)
	}
}

// What a peer took is set next to the copies of the same rounds.
func TestComparedWithPeers(t *testing.T) {
	t.Parallel()
	b := &bench{mainCopy: []copied{{copy: 10, ready: 16}, {copy: 8, ready: 24}}}
	b.rows = figures.Rows()
	b.comparePeer(20 * time.Second)
	b.comparePeer(16 * time.Second)
	b.comparePeer(40 * time.Second)
	f := b.file()
	for row, want := range map[string]float64{"copy.fixed.peers": 1.8, "ready.peers": 1.25} {
		if r, _ := f.Row(row); r.Value == nil || *r.Value != want || r.Met == nil || !*r.Met {
			t.Errorf("%s: %+v, want %v", row, r, want)
		}
	}
}
