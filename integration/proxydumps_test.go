package integration_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// restoredDocuments is the number of documents that each mongorestore brings.
const restoredDocuments = 2_000

// dumps runs mongodump and mongorestore through proxies, one after the other, until stop.
type dumps struct {
	stop   func()
	rounds int
	failed []string
}

// databaseTool finds mongodump or mongorestore; empty: it is not installed.
func databaseTool(name string) string {
	if path := os.Getenv("DBCONTROLLER_TEST_" + strings.ToUpper(name)); path != "" {
		return path
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	return path
}

func startDumps(ctx context.Context, t *testing.T, uri, database string) *dumps {
	t.Helper()
	d := &dumps{stop: func() {}}
	dump, restore := databaseTool("mongodump"), databaseTool("mongorestore")
	if dump == "" || restore == "" {
		t.Log("without mongodump and mongorestore: they are not in PATH, and neither DBCONTROLLER_TEST_MONGODUMP nor DBCONTROLLER_TEST_MONGORESTORE names them")
		return d
	}
	working, end := context.WithCancel(ctx)
	done := make(chan struct{})
	folder := t.TempDir()
	go func() {
		defer close(done)
		for working.Err() == nil && len(d.failed) == 0 {
			d.failed = append(d.failed, d.round(ctx, folder, dump, restore, uri, database)...)
		}
	}()
	d.stop = func() {
		end()
		<-done
	}
	return d
}

// round dumps the database, and restores documents that are new.
func (d *dumps) round(ctx context.Context, folder, dump, restore, uri, database string) (failed []string) {
	out, err := exec.CommandContext(ctx, dump, "--uri", uri, "--db", database, "--out", folder).CombinedOutput()
	// Older ones put no quotes around the name.
	if err != nil || !strings.Contains(strings.ReplaceAll(string(out), "`", ""), fmt.Sprintf("done dumping %s.records (%d documents)", database, clientRecords)) {
		return []string{fmt.Sprintf("mongodump, round %d: %v\n%s", d.rounds+1, err, out)}
	}
	var docs []byte
	for i := range restoredDocuments {
		doc, err := bson.Marshal(bson.D{{Key: "_id", Value: fmt.Sprintf("%d-%d", d.rounds, i)}, {Key: "text", Value: strings.Repeat("x", 100)}})
		if err != nil {
			return []string{err.Error()}
		}
		docs = append(docs, doc...)
	}
	file := filepath.Join(folder, database, "restored.bson")
	if err := os.WriteFile(file, docs, 0o600); err != nil {
		return []string{err.Error()}
	}
	out, err = exec.CommandContext(ctx, restore, "--uri", uri, "--nsInclude", database+".restored", folder).CombinedOutput()
	if err != nil || !strings.Contains(string(out), fmt.Sprintf("%d document(s) restored successfully. 0 document(s) failed to restore", restoredDocuments)) {
		return []string{fmt.Sprintf("mongorestore, round %d: %v\n%s", d.rounds+1, err, out)}
	}
	d.rounds++
	return nil
}

// check compares what was restored with the data.
func (d *dumps) check(ctx context.Context, t *testing.T, db *mongo.Database) {
	t.Helper()
	t.Logf("%d rounds of mongodump and mongorestore", d.rounds)
	for _, f := range d.failed {
		t.Error(f)
	}
	n, err := db.Collection("restored").CountDocuments(ctx, bson.D{})
	if want := int64(d.rounds * restoredDocuments); len(d.failed) == 0 && (err != nil || n != want) {
		t.Errorf("%d documents were restored, want %d: %v", n, want, err)
	}
}
