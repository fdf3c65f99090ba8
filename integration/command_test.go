package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"dbcontroller.dev/integration/subprocess"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// result is a command that has ended.
type result struct {
	code           int
	stdout, stderr string
}

// execute runs a command of dbcontroller to its end.
func execute(ctx context.Context, t *testing.T, env []string, args ...string) result {
	t.Helper()
	cmd := command(t, roleCommand, args, env)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	p, err := subprocess.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	stop := context.AfterFunc(ctx, p.Kill)
	defer stop()
	code, _ := p.Wait()
	if ctx.Err() != nil {
		t.Fatalf("%v does not end: %v\n%s", args, ctx.Err(), tail(errs.String(), 10))
	}
	return result{code, out.String(), errs.String()}
}

// confirmation is what a command says is to be given with --confirm.
func (r result) confirmation(t *testing.T) string {
	t.Helper()
	_, confirm, found := strings.Cut(r.stderr, "--confirm ")
	confirm, _, _ = strings.Cut(confirm, "\n")
	if !found || len(strings.Fields(confirm)) != 1 {
		t.Fatalf("it does not say what to confirm: %+v", r)
	}
	return confirm
}

// refuses fails the test unless the command failed with one clear line, which says all of
// want and nothing that is secret.
func (r result) refuses(t *testing.T, want ...string) {
	t.Helper()
	if r.code == 0 {
		t.Errorf("it succeeds: %s", r.stdout)
	}
	if r.stdout != "" {
		t.Errorf("it prints to standard output though it fails: %s", r.stdout)
	}
	var said []string
	for line := range strings.Lines(r.stderr) {
		if !strings.HasPrefix(line, "{") { // logs are JSON
			said = append(said, strings.TrimSpace(line))
		}
	}
	if len(said) != 1 || !strings.HasPrefix(said[0], "dbcontroller: ") {
		t.Errorf("it says in %d lines, want one: %q", len(said), said)
	}
	for _, w := range want {
		if !strings.Contains(strings.Join(said, " "), w) {
			t.Errorf("it does not say %q: %s", w, strings.Join(said, " "))
		}
	}
	if strings.Contains(r.stderr, secret) {
		t.Errorf("it tells a secret: %s", r.stderr)
	}
	if t.Failed() {
		t.Logf("standard error:\n%s", r.stderr)
	} else {
		t.Log(said[0])
	}
}

// secret is a password that nothing must show.
const secret = "hunter2-secret"

// json decodes what a command printed.
func (r result) json(t *testing.T) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &out); r.code != 0 || err != nil {
		t.Fatalf("exit code %d, %v: %s%s", r.code, err, r.stdout, r.stderr)
	}
	return out
}

// everything is what a system has stored: in the databases, names, kinds and content of
// all collections; in etcd all keys but those that end with a lease.
func (s *system) everything(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for version, db := range s.db {
		specs, err := db.ListCollectionSpecifications(ctx, bson.D{})
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range specs {
			name := fmt.Sprintf("%s %s %s %s", version, spec.Type, spec.Name, spec.Options)
			if spec.Type != "view" && !strings.HasPrefix(spec.Name, "system.") {
				out[name] = contentOf(ctx, t, db.Collection(spec.Name))
			} else {
				out[name] = ""
			}
		}
	}
	kvs, _, err := s.etcd.List(ctx, s.record.Root()+"/")
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range kvs {
		// On a slow machine, the lease of a controller that was killed long ago ends at any time.
		if kv.Lease == 0 {
			out["etcd "+kv.Key] = string(kv.Value)
		}
	}
	return out
}

func contentOf(ctx context.Context, t *testing.T, c *mongo.Collection) string {
	t.Helper()
	// The leader counts in the mark of beats once a second.
	cursor, err := c.Find(ctx, bson.D{{Key: "version", Value: bson.D{{Key: "$not", Value: bson.Regex{Pattern: "#beat$"}}}}}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	var docs []bson.Raw
	if err := cursor.All(ctx, &docs); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(docs)
}

// unchanged runs do, and fails the test if do changes data or state. Keys of progress may differ.
func (s *system) unchanged(ctx context.Context, t *testing.T, do func()) {
	t.Helper()
	before := s.everything(ctx, t)
	do()
	after := s.everything(ctx, t)
	passing := func(key string) bool {
		return slices.ContainsFunc([]string{"/progress/", "/checkpoints/", "/beats/"}, func(part string) bool {
			return strings.HasPrefix(key, "etcd ") && strings.Contains(key, part)
		})
	}
	for key := range before {
		if passing(key) {
			delete(before, key)
		}
	}
	for key := range after {
		if passing(key) {
			delete(after, key)
		}
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("data or state changed (-before +after):\n%s", diff)
	}
}
