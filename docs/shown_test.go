package docs_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/config"
	"dbcontroller.dev/integration/page"
	"dbcontroller.dev/internal/program/dbcontroller/cli"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

var hereDoc = regexp.MustCompile(`(?s)cat > (\S+) <<'END'\n(.*?)END\n`)

// files writes the files that pages show, and returns their folder.
func files(t *testing.T, pages ...string) string {
	t.Helper()
	dir := t.TempDir()
	put := func(path, text string) {
		path = filepath.Join(dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range pages {
		filesOf(t, name, put)
	}
	return dir
}

func filesOf(t *testing.T, name string, put func(path, text string)) {
	t.Helper()
	for _, b := range page.Blocks(read(t, name)) {
		switch {
		case b.Language == "sh":
			for _, m := range hereDoc.FindAllStringSubmatch(b.Text, -1) {
				put(m[1], m[2])
			}
		case b.Language == "yaml" && !strings.HasPrefix(b.Marker, "from: "):
			file, ok := b.File()
			if !ok {
				t.Errorf("%s:%d: YAML must begin with a comment that names its file", name, b.Line)
				continue
			}
			put(file, b.Text)
		}
	}
}

// transformers are those that the guide's configuration and lenses make, as the program
// makes them.
func transformers(t *testing.T) *transform.Registry {
	t.Helper()
	dir := files(t, "program.md")
	env := func(string) (string, bool) { return "mongodb://db.example.com", true }
	if _, err := config.Load(filepath.Join(folder, "..", "examples", "starter", "service", "config.yaml"), env); err != nil {
		t.Error(err)
	}
	cfg, err := config.Load(filepath.Join(dir, "shop.yaml"), env)
	if err != nil {
		t.Fatal(err)
	}
	registry, _, err := cli.Transformers(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return registry
}

// TestLensesDoWhatIsShown: the guide's configuration and lenses are right, and make of its
// records what it says.
func TestLensesDoWhatIsShown(t *testing.T) {
	const name = "program.md"
	registry := transformers(t)
	up, err := registry.Direction("v1", "v2")
	if err != nil {
		t.Fatal(err)
	}
	down, err := registry.Direction("v2", "v1")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, b := range page.Blocks(read(t, name)) {
		kind, ok := strings.CutPrefix(b.Marker, "up: ")
		if !ok {
			continue
		}
		shown++
		lines := strings.Split(strings.TrimSpace(b.Text), "\n")
		old := parse(t, lines[0])
		key, err := record.KeyOfDoc(old)
		if err != nil {
			t.Fatal(err)
		}
		id, ok, err := up.GroupOf(kind, key)
		if err != nil || !ok {
			t.Fatalf("%s:%d: group of %s: %t %v", name, b.Line, key, ok, err)
		}
		source := transform.Group{Name: id.Name, Records: []record.Record{{Kind: kind, Key: key, Doc: old}}}
		now, err := up.Transform(id, source, transform.Group{Name: id.Name})
		if err != nil {
			t.Fatalf("%s:%d: %v", name, b.Line, err)
		}
		var got, want []string
		for _, r := range now {
			got = append(got, show(t, r.Doc))
		}
		for _, l := range lines[1:] {
			want = append(want, show(t, parse(t, l)))
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("%s:%d: what the lens makes, and what the page says (-got +page):\n%s", name, b.Line, diff)
		}
		back, err := down.Transform(id, transform.Group{Name: id.Name, Records: now}, source)
		if err != nil || len(back) != 1 || !bytes.Equal(back[0].Doc, old) {
			t.Errorf("%s:%d: comes back as %v %v", name, b.Line, back, err)
		}
	}
	if shown == 0 {
		t.Errorf("%s shows no record", name)
	}
}

// TestCommandsPrintWhatIsShown: blocks that begin with a call of 'dbcontroller lens' show
// what it prints.
func TestCommandsPrintWhatIsShown(t *testing.T) {
	const name = "program.md"
	text := read(t, name)
	t.Chdir(files(t, name))
	typo := strings.ReplaceAll(read(t, "lenses/customers.yaml"), "rename:", "renam:")
	if err := os.WriteFile("lenses/bad.yaml", []byte(typo), 0o644); err != nil {
		t.Fatal(err)
	}
	all, shown := page.Blocks(text), 0
	for _, b := range slices.Backward(all) {
		first, _, _ := strings.Cut(b.Text, "\n")
		given, command, ok := strings.Cut(first, "dbcontroller lens ")
		if !ok || !strings.HasPrefix(first, "$ ") {
			continue
		}
		shown++
		var stdin string
		if file, ok := strings.CutPrefix(strings.TrimSuffix(given, " | "), "$ head -1 "); ok {
			stdin, _, _ = strings.Cut(read(t, file), "\n")
		}
		got := first + "\n" + run(t, stdin, append([]string{"lens"}, strings.Fields(command)...))
		if *update {
			text = text[:b.Start] + got + text[b.End:]
		} else if diff := cmp.Diff(rate.ReplaceAllString(got, "N"), rate.ReplaceAllString(b.Text, "N")); diff != "" {
			t.Errorf("%s:%d: not what is printed; run go test ./docs -update (-printed +page):\n%s", name, b.Line, diff)
		}
	}
	if shown == 0 {
		t.Errorf("%s shows no command", name)
	}
	if *update {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

var rate = regexp.MustCompile(`[0-9,]+ records a second`)

// folder is that of the pages.
var folder, _ = os.Getwd()

// run is what a command prints, an error as main prints it.
func run(t *testing.T, stdin string, args []string) string {
	t.Helper()
	var out bytes.Buffer
	root := cli.Command(nil)
	root.SetArgs(args)
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(io.Discard) // how far it is, on a slow machine
	if err := root.ExecuteContext(t.Context()); err != nil {
		fmt.Fprintln(&out, "dbcontroller:", err)
	}
	return out.String()
}

func parse(t *testing.T, text string) bson.Raw {
	t.Helper()
	var d bson.D
	if err := bson.UnmarshalExtJSON([]byte(text), false, &d); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	raw, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func show(t *testing.T, doc bson.Raw) string {
	t.Helper()
	text, err := bson.MarshalExtJSON(doc, false, false)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
