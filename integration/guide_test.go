package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/integration/page"
	"dbcontroller.dev/integration/subprocess"
)

// TestGuideAsShown is a reader of docs/program.md and then of docs/operations.md: the blocks
// of commands are run in their order, in one shell, with the real program, a MongoDB that has
// the databases which the pages name, and an etcd in the controller. What a page shows after
// commands is what they print, but for times, ids and counts that differ from run to run.
//
// A block is run, or is the output of the one before it, or the comment before it says why not.
func TestGuideAsShown(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs whole switches")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	r := newReader(ctx, t)
	began := time.Now()
	for _, name := range []string{"program.md", "operations.md"} {
		text, err := os.ReadFile(filepath.Join("..", "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		ran := r.ran
		for _, b := range page.Blocks(string(text)) {
			r.block(ctx, fmt.Sprintf("docs/%s:%d", name, b.Line), b)
		}
		if r.ran-ran < 10 {
			t.Errorf("%s: %d commands were run, there have long been more", name, r.ran-ran)
		}
		t.Logf("%s is done after %v", name, time.Since(began).Round(time.Second))
	}
}

// reader follows a page in a shell.
type reader struct {
	t     *testing.T
	dir   string
	shell *subprocess.Process
	stdin io.Writer
	ran   int
	last  []answered // of the block before
}

// answered is a command and what it printed.
type answered struct{ command, printed string }

func newReader(ctx context.Context, t *testing.T) *reader {
	nodeClient(t) // brings the driver
	driver, err := filepath.Abs("../clients")
	if err != nil {
		t.Fatal(err)
	}
	mongo := start(ctx, t, localmongo.Options{Own: true})
	r := &reader{t: t, dir: t.TempDir()}
	for _, folder := range []string{"bin", "lenses"} {
		if err := os.Mkdir(filepath.Join(r.dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(driver, filepath.Join(r.dir, "clients")); err != nil {
		t.Fatal(err)
	}
	// The ports of the page may be taken here.
	program := built.path(t)
	r.write("bin/dbcontroller", "#!/bin/sh\ncase $1 in run) set -- \"$@\" --api-listen 127.0.0.1:0 --operator-listen 127.0.0.1:0;; esac\nexec '"+program+"' \"$@\"\n")
	if err := os.Chmod(filepath.Join(r.dir, "bin", "dbcontroller"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash")
	cmd.Dir = r.dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "DBCONTROLLER_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+r.dir, "MONGO_URI="+mongo.URI(), "PATH="+filepath.Join(r.dir, "bin")+":"+os.Getenv("PATH"))
	if r.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if r.shell, err = subprocess.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the next one, also where that fails
		if t.Failed() {
			t.Logf("the controller's log:\n%s", subprocess.Tail(filepath.Join(r.dir, "controller.log"), 40))
		}
		// What runs in the background is of the shell's group.
		_ = syscall.Kill(-r.shell.Pid(), syscall.SIGKILL) // an error means that all have ended
		<-r.shell.Done()
	})
	t.Cleanup(func() { // a controller ends in order
		if t.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if _, code := r.run(ctx, "kill $(jobs -p); wait"); code != 0 {
			t.Errorf("the controller ends with code %d", code)
		}
	})
	return r
}

func (r *reader) write(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, filepath.FromSlash(name)), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// address is the controller's, once its log has it.
func (r *reader) address(ctx context.Context) string {
	r.t.Helper()
	var api string
	eventually(ctx, r.t, "the controller listens", func() (err error) {
		api, _, err = subprocess.Addresses(filepath.Join(r.dir, "controller.log"))
		return err
	})
	return api
}

// run runs a command in the shell, and returns what a reader looks at: what it prints, and the
// line that says what is wrong. How far something is goes to standard error as well.
func (r *reader) run(ctx context.Context, command string) (printed string, code int) {
	r.t.Helper()
	const shownPort = "127.0.0.1:7090"
	if strings.Contains(command, shownPort) {
		command = strings.ReplaceAll(command, shownPort, r.address(ctx))
	}
	r.write("command", command)
	if _, err := io.WriteString(r.stdin, ". ./command >out 2>err </dev/null; echo $? >code.new; mv code.new code\n"); err != nil {
		r.t.Fatal(err)
	}
	eventually(ctx, r.t, command, func() error {
		if !r.shell.Running() {
			r.t.Fatalf("%s: the shell has ended", command)
		}
		text, err := os.ReadFile(filepath.Join(r.dir, "code"))
		if err == nil {
			_, err = fmt.Sscan(string(text), &code)
		}
		return err
	})
	if err := os.Remove(filepath.Join(r.dir, "code")); err != nil {
		r.t.Fatal(err)
	}
	r.ran++
	text := func(name string) string {
		text, err := os.ReadFile(filepath.Join(r.dir, name))
		if err != nil {
			r.t.Fatal(err)
		}
		return string(text)
	}
	printed = text("out")
	for line := range strings.Lines(text("err")) {
		if strings.HasPrefix(line, "dbcontroller: ") {
			printed += line
		} else if code != 0 {
			r.t.Logf("%s: %s", command, line)
		}
	}
	return printed, code
}

func (r *reader) block(ctx context.Context, at string, b page.Block) {
	r.t.Helper()
	file, named := b.File()
	switch why, not := strings.CutPrefix(b.Marker, "not run: "); {
	case not && why != "", strings.HasPrefix(b.Marker, "up: "): // docs.TestLensesDoWhatIsShown does these
		r.last = nil
	case named:
		r.write(file, b.Text)
	case b.Language == "sh":
		for _, command := range commandsOf(b.Text) {
			r.last = []answered{{command, r.must(ctx, at, command)}}
		}
	case b.Language == "text" && strings.HasPrefix(b.Text, "$ "):
		r.last = nil
		var want strings.Builder
		for line := range strings.Lines(b.Text) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				printed, _ := r.run(ctx, command)
				r.last = append(r.last, answered{command, printed})
			} else {
				want.WriteString(line)
			}
		}
		r.compare(ctx, at, want.String(), sameText)
	case b.Language == "text" && len(r.last) > 0 && strings.Contains(r.last[len(r.last)-1].command, " watch "):
		r.compare(ctx, at, b.Text, sameWatch)
	case b.Language == "text" && len(r.last) > 0:
		r.compare(ctx, at, b.Text, sameText)
	case b.Language == "json" && len(r.last) > 0:
		r.compare(ctx, at, b.Text, sameShape)
	default:
		r.t.Errorf(`%s: neither run nor the output of what is: write "<!-- not run: WHY -->" before it`, at)
	}
}

// must runs a command that has to succeed, or to fail where the page says that it refuses. One
// that a script would try again (docs/cli.md, "Exit status") is tried again, and one that looks.
func (r *reader) must(ctx context.Context, at, command string) (printed string) {
	r.t.Helper()
	eventually(ctx, r.t, at+": "+command, func() error {
		var code int
		printed, code = r.run(ctx, command)
		switch refused := code != 0; {
		case strings.Contains(command, "# refuses") && refused && strings.Contains(printed, "--confirm"):
		case refused && (code == 6 || code == 7 || looks.MatchString(command)):
			return errors.New(printed)
		case refused || strings.Contains(command, "# refuses"):
			r.t.Fatalf("%s: %s ends with code %d:\n%s", at, command, code, printed)
		}
		return nil
	})
	return printed
}

// compare compares what the page shows with what commands print. What only looks is asked
// again until that is so: controllers go on meanwhile.
func (r *reader) compare(ctx context.Context, at, want string, same func(want, got string) string) {
	r.t.Helper()
	soon, cancel := context.WithTimeout(ctx, patience) // before ctx ends, which would not say what comes
	defer cancel()
	for {
		var got strings.Builder
		for _, s := range r.last {
			got.WriteString(s.printed)
		}
		diff := same(want, got.String())
		if diff == "" {
			return
		}
		last := &r.last[len(r.last)-1]
		if soon.Err() != nil || !looks.MatchString(last.command) {
			r.t.Errorf("%s: not what comes (-page +printed):\n%s\nprinted:\n%s", at, diff, got.String())
			return
		}
		last.printed, _ = r.run(ctx, last.command)
	}
}

var looks = regexp.MustCompile(`^dbcontroller (get|parked|verify|plan)\b`)

// commandsOf returns the commands of a block: a line, with what it goes on in.
func commandsOf(text string) (out []string) {
	var command, end string
	for line := range strings.Lines(text) {
		command += line
		if m := regexp.MustCompile(`<<'(\w+)'`).FindStringSubmatch(line); m != nil {
			end = m[1]
		}
		if end != "" && strings.TrimSpace(line) != end || strings.HasSuffix(line, "\\\n") {
			continue
		}
		if strings.TrimSpace(command) != "" {
			out = append(out, command)
		}
		command, end = "", ""
	}
	return out
}

// passing is what differs from run to run, and what the page has in its place is as good.
var passing = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "TOKEN"},
	{regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d`), "TIME"},
	{regexp.MustCompile(`lag +\d[\w,.]*( ms)?`), "lag N"},
	{regexp.MustCompile(`lag +not known`), "lag N"},
	{regexp.MustCompile(`\bin \d[\w,.]*( ms)?`), "in N"},
	{regexp.MustCompile(`[\d,]+ groups (compared|,)`), "N groups $1"},
	{regexp.MustCompile(`compared +[\d,]+ groups`), "compared N groups"},
	{regexp.MustCompile(`[\d,]+ records a second`), "N records a second"},
	{regexp.MustCompile(`controllers  +\S+`), "controllers ID"},
	{regexp.MustCompile(` +`), " "},
}

func stable(text string) string {
	for _, p := range passing {
		text = p.what.ReplaceAllString(text, p.with)
	}
	return strings.TrimSpace(text)
}

func sameText(want, got string) string { return cmp.Diff(stable(want), stable(got)) }

// inPhase is a line of 'watch' but for where the upgrade is just then.
var inPhase = regexp.MustCompile(`(INITIAL_SYNCING|SWITCHING)(/\w+)? \| ready \d+/`)

// sameWatch compares the version in the last line of 'watch', and the form of the lines before
// it: which of them come depends on how fast the machine is.
func sameWatch(want, got string) string {
	lines := func(text string) []string {
		return strings.Split(stable(inPhase.ReplaceAllString(text, "PHASE | ready N/")), "\n")
	}
	shown, came := lines(want), lines(got)
	last := len(came) - 1
	upTo := func(line string, parts int) []string {
		all := strings.Split(line, " | ")
		return all[:min(parts, len(all))]
	}
	known := []string{"copied", "lag", "parked", "waits", "switch"} // parts that may or may not be over
	for _, line := range came[:last] {
		begins := upTo(line, 3)
		if !slices.ContainsFunc(shown, func(s string) bool { return slices.Equal(upTo(s, 3), begins) }) {
			return fmt.Sprintf("the line %q begins as none of %q", line, shown)
		}
		for _, part := range strings.Split(line, " | ")[len(begins):] {
			if word, _, _ := strings.Cut(part, " "); !slices.Contains(known, word) {
				return fmt.Sprintf("the line %q says %q", line, part)
			}
		}
	}
	// When the switch is just over some shards, or all, have not said yet how far they are.
	if strings.Contains(came[last], "the switch") {
		return fmt.Sprintf("the line %q waits for a switch that is over", came[last])
	}
	return cmp.Diff(upTo(shown[len(shown)-1], 1), upTo(came[last], 1))
}

// sameShape compares which fields the last of several JSON objects has.
func sameShape(want, got string) string {
	fields := func(text string) any {
		var last any
		for d := json.NewDecoder(strings.NewReader(text)); ; {
			var v any
			if err := d.Decode(&v); err != nil {
				return fieldsOf(last)
			}
			last = v
		}
	}
	return cmp.Diff(fields(want), fields(got))
}

func fieldsOf(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out[k] = fieldsOf(v[k])
		}
		return out
	case []any:
		if len(v) > 0 {
			return []any{fieldsOf(v[0])}
		}
	}
	return ""
}
