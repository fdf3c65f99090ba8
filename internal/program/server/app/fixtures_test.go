package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/base/limits"
)

// TestFixtures: what a file has is what a version starts with, in all of its places; what it
// cannot start with is one line that says where, and shows nothing of the file.
func TestFixtures(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	good := `{"_id": "a", "n": {"$numberLong": "1"}}` + "\n\n" + `{"_id": "b", "at": {"$date": "2026-01-02T03:04:05Z"}}` + "\n"
	for name, tc := range map[string]struct{ text, kind, want string }{
		"good":            {good, "tasks", ""},
		"empty":           {"", "tasks", ""},
		"no newline":      {strings.TrimSpace(good), "tasks", ""},
		"no JSON":         {good + "title: " + secret, "tasks", "fixtures of v2: seed.jsonl:4: it is not a document in Extended JSON"},
		"half a document": {`{"_id": "a", "text": "` + secret, "tasks", "seed.jsonl:1: it is not a document in Extended JSON"},
		"a list":          {`[{"_id": "` + secret + `"}]`, "tasks", "seed.jsonl:1: it is not a document in Extended JSON"},
		"no name":         {`{"name": "` + secret + `"}`, "tasks", "seed.jsonl:1: its _id is not a text"},
		"empty name":      {`{"_id": ""}`, "tasks", "seed.jsonl:1: its _id is not a text"},
		"number as name":  {`{"_id": 7}`, "tasks", "seed.jsonl:1: its _id is not a text"},
		"too many":        {strings.Repeat(`{"_id": "a"}`+"\n", limits.Fixtures+1), "tasks", "there are 1001, but its database creates at most 1000"},
		"another kind":    {good, "taks", `it has no kind "taks": correct kind, want one of notes, tasks`},
	} {
		file := filepath.Join(t.TempDir(), "seed.jsonl")
		if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		dbs := []config.DB{{Version: "v1", APIVersion: "v1"}, {Version: "v2", APIVersion: "v2", Backend: "mongo", Fixtures: []config.Fixtures{{Kind: tc.kind, File: file}}}}
		got, err := fixtures(dbs, map[string][]string{"v2": {"notes", "tasks"}})
		switch {
		case tc.want == "" && err != nil, tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		case err != nil && (strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v", name, err)
		case name == "good":
			docs := fmt.Sprint(got["v2"][0].Kind, got["v2"][0].Doc, got["v2"][1].Doc)
			if want := `tasks{"_id": "a","n": {"$numberLong":"1"}} {"_id": "b","at": {"$date":{"$numberLong":"1767323045000"}}}`; docs != want || len(got) != 1 {
				t.Errorf("read %s of %d, want %s", docs, len(got), want)
			}
		}
	}
	_, err := fixtures([]config.DB{{Version: "v1", APIVersion: "v1", Backend: "mongo", Fixtures: []config.Fixtures{{Kind: "tasks", File: "none/seed.jsonl"}}}}, nil)
	if err == nil || !strings.Contains(err.Error(), "fixtures of v1: open none/seed.jsonl") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestFixturesInEtcd: no more are accepted than a transaction of that etcd makes.
func TestFixturesInEtcd(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "seed.jsonl")
	for _, tc := range []struct{ operations, most int }{{0, 121}, {1024, 1000}} {
		for n, good := range map[int]bool{tc.most: true, tc.most + 1: false} {
			if err := os.WriteFile(file, []byte(strings.Repeat(`{"_id": "a"}`+"\n", n)), 0o600); err != nil {
				t.Fatal(err)
			}
			db := config.DB{Version: "v2", APIVersion: "v2", Backend: "etcd", MaxTxnOps: tc.operations, Fixtures: []config.Fixtures{{Kind: "tasks", File: file}}}
			_, err := fixtures([]config.DB{db}, map[string][]string{"v2": {"notes", "tasks"}})
			if want := fmt.Sprintf("there are %d, but its database creates at most %d", n, tc.most); good && err != nil || !good && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%d of %d: %v", n, tc.most, err)
			}
		}
	}
}
