package lenses_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
)

// TestLensFollow: what the page of lenses does not show of the lenses of data updates.
func TestLensFollow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"rooms.yaml": "kinds: {from: rooms, to: rooms}\nkey: {from: 'rooms/{r}', to: 'cities/{c}/rooms/{r}', with: {c: {field: city}}}\noperations: []\n",
		"books.yaml": "imports: {places: rooms.yaml}\noperations:\n  - reference: {field: room, kind: rooms, service: places}\n",
		"plain.yaml": "operations: []\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		args, in, want string
		code           exit.Status
	}{
		{"lint --references new", "", "no lens given: give FILE with --references", exit.Usage},
		{"lint --references newest books.yaml", "", "--references newest: give new, old or both", exit.Usage},
		{"lint --references new plain.yaml", "", "it has no references", exit.Usage},
		{"lint --references new none.yaml", "", "none.yaml: no such file", exit.Usage},
		{"lint --references new --sample books.json books.yaml", "", "are checked without records", exit.Usage},
		{"try --references new --down books.yaml", "", "give only FILE", exit.Usage},
		{"try --references new books.yaml", "", "standard input has 0 records", exit.Usage},
		{"try --references new books.yaml", `{"_id":1,"room":"rooms/a"}`, "rooms of places: only a controller looks up the other key of rooms/a, in the databases of places", exit.Findings},
	} {
		args := strings.ReplaceAll(tc.args, " books.yaml", " "+dir+"/books.yaml")
		args = strings.ReplaceAll(strings.ReplaceAll(args, "plain.yaml", dir+"/plain.yaml"), "none.yaml", dir+"/none.yaml")
		_, err := runLens(t, tc.in, args)
		if err == nil || !strings.Contains(err.Error(), tc.want) || exit.Of(err) != tc.code {
			t.Errorf("%s: %v (exit %v), want %q (exit %v)", tc.args, err, exit.Of(err), tc.want, tc.code)
		}
	}
	text, err := runLens(t, "", "lint --json --references new "+dir+"/books.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type reference struct {
		Field, Kind, Service string
		LookedUp             bool
	}
	var out struct {
		Clean bool
		Files []struct{ References []reference }
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil || !out.Clean || len(out.Files) != 1 || len(out.Files[0].References) != 1 || out.Files[0].References[0] != (reference{"room", "rooms", "places", true}) {
		t.Errorf("%v: %s", err, text)
	}
	if text, err = runLens(t, `{"_id":1,"room":"cities/c/rooms/a"}`, "try --references old "+dir+"/books.yaml"); err != nil || !strings.Contains(text, `"room": "rooms/a"`) {
		t.Errorf("%s, %v", text, err)
	}
}
