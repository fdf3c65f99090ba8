package integration_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// TestCopyMemory copies many records with the real binary, as the race detector multiplies
// memory, and looks at the most that it ever held.
func TestCopyMemory(t *testing.T) {
	t.Parallel()
	const (
		records = 100_000
		size    = 500 // bytes
		most    = 300 << 20
	)
	ctx, cancel := context.WithTimeout(t.Context(), patience) // the build may find no cache
	defer cancel()
	binary := built.path(t)
	s := newSystem(ctx, t, settings{copy: "{auto: true, workers: 4}"})
	coll := s.db["v1"].Collection(packagesKind)
	for from := 0; from < records; from += 10_000 {
		docs := make([]any, 0, 10_000)
		for i := from; i < from+10_000; i++ {
			docs = append(docs, sized(t, packageDoc("v1", packageKey(i), 0), size))
		}
		if _, err := coll.InsertMany(ctx, docs); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	c := s.adopt(spawn(t, "controller", weighed(binary, []string{
		"run", "--config", s.config, "--id", "controller", "--api-listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0",
	}, s.env)))
	c.ready(ctx)
	s.awaitSync(ctx)
	took := time.Since(began)
	peak := peakMemory(t, c.Pid())
	if peak > most {
		t.Errorf("the controller held up to %d MB, want %d at most", peak>>20, most>>20)
	}
	d, err := s.record.Get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ns, _ := d.Namespace("v2")
	kind, _ := ns.Kind(packagesKind)
	n, err := s.db["v2"].Collection(kind.Physical).CountDocuments(ctx, bson.D{})
	if err != nil || n != records {
		t.Errorf("%d records are copied: %v", n, err)
	}
	t.Logf("%d records of %d bytes copied and compared in %s, most memory %d MB", records, size, took.Round(time.Millisecond), peak>>20)
	if code := c.terminate(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// sized fills a document up.
func sized(t *testing.T, doc bson.D, size int) bson.D {
	t.Helper()
	doc = append(doc, bson.E{Key: "filler", Value: ""})
	raw, err := bson.Marshal(doc)
	if err != nil || len(raw) > size {
		t.Fatalf("a document has %d bytes already: %v", len(raw), err)
	}
	doc[len(doc)-1].Value = strings.Repeat("x", size-len(raw))
	return doc
}

// weighed is a program whose memory is looked at: it collects garbage as often as it does for
// users, whatever tests are run with.
func weighed(binary string, args, env []string) *exec.Cmd {
	return program(binary, args, append(slices.Clone(env), "GOGC=100"))
}

// peakMemory is the most memory in bytes that a process has held.
func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(kb), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatalf("no VmHWM in %s", status)
	return 0
}
