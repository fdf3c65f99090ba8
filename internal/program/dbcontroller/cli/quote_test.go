package cli

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"dbcontroller.dev/config"
	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/base/printable"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/program/process"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/upgradestate"
)

// evil is what a user of the service chose as an id: it clears the screen, sets the title, forges a
// row, and turns the direction of the text behind it.
const evil = "id\x1b[2J\x1b]0;owned\x07\nFORGED row\r\u202e\u009b31m\xff"

// TestNothingIsACommandOfTheTerminal: whatever keys and names hold, no verb prints a command of the
// terminal, or a row that is none. JSON has them in its escapes.
func TestNothingIsACommandOfTheTerminal(t *testing.T) {
	t.Parallel()
	text := strings.ToValidUTF8(evil, "")
	d := sample()
	d.History = []*dbv1.HistoryEntry{{At: text, What: text, Id: text, By: text, Outcome: text, Detail: text, Identity: text}}
	d.UpgradeState.LastFailure = text
	d.Effects = []string{text}
	f := &fake{deployment: d, parked: []*dbv1.ParkedRecord{{Kind: text, Key: text, Error: text}}}
	server := "--server=" + serve(t, f)
	for _, args := range [][]string{
		{"parked"}, {"history"}, {"get", "deployment"}, {"switch", "--dry-run"}, {"keys", "rotate"},
	} {
		out, diag, err := run(t, append(args, server)...)
		if err != nil {
			t.Errorf("%v: %v", args, err)
		}
		for _, line := range strings.Split(out+diag, "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "FORGED") || strings.ContainsFunc(line, func(r rune) bool { return r != '\t' && printable.Bad(r) }) {
				t.Errorf("%v prints %q", args, line)
			}
		}
		if !strings.Contains(out+diag, `id\x1b[2J\x1b]0;owned\a\nFORGED row\r\u202e\u009b31m`) && args[0] != "get" {
			t.Errorf("%v does not show the text: %q", args, out+diag)
		}
	}
	// Standard error is for people all the same, and JSON is shown by terminals, too.
	planner := &streamer{said: []*dbv1.WorkProgress{{Doing: text}}}
	planner.plan = &dbv1.PlanReport{Ok: true, FromVersion: text}
	plans := "--server=" + serveAPI(t, planner)
	for _, args := range [][]string{
		{"switch", "--dry-run", "--json", server}, {"keys", "rotate", "--json", server}, {"parked", "waive", "--kind", "x", "--key", text, "--json", "--dry-run", server},
		{"plan", "--json", plans}, {"plan", plans},
	} {
		out, diag, err := run(t, args...)
		if err != nil {
			t.Errorf("%q: %v", args, err)
		}
		for _, line := range strings.Split(out+diag, "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "FORGED") || strings.ContainsFunc(line, printable.Bad) {
				t.Errorf("%q prints %q", args, line)
			}
		}
		if !strings.Contains(diag, `id\x1b[2J\x1b]0;owned\a\nFORGED row\r\u202e\u009b31m`) {
			t.Errorf("%q: standard error does not show the text: %q", args, diag)
		}
		if !slices.Contains(args, "--json") {
			continue
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Errorf("%q prints %q: %v", args, out, err)
		} else if from, ok := got["fromVersion"]; ok && from != text {
			t.Errorf("%q: the JSON holds %q, want %q", args, from, text)
		}
	}
	// A plan that is made by the command itself is not received.
	var b strings.Builder
	if err := (&connection{}).printPlan(&b, &dbv1.PlanReport{Ok: true, FromVersion: text}); err != nil || strings.Contains(b.String(), "\nFORGED") {
		t.Errorf("a plan with --config: %q, %v", b.String(), err)
	}
	if out, _, err := run(t, "parked", "--json", server); err != nil || !strings.Contains(out, `id\u001b[2J`) {
		t.Errorf("as JSON: %q, %v", out, err)
	}
	f.err = connect.NewError(connect.CodeFailedPrecondition, errors.New(text))
	if _, _, err := run(t, "history", server); err == nil || strings.ContainsFunc(printable.Line(err.Error()), printable.Bad) {
		t.Errorf("an error: %q", err)
	}
}

// TestRecordsForgeNoRow: users of the service chose the ids and fields of a sample. None of them
// becomes a row of a report.
func TestRecordsForgeNoRow(t *testing.T) {
	t.Parallel()
	const nothing = "testdata/lens/nothing.yaml --sample -"
	for _, c := range []struct {
		line, stdin string
		options     []lens.Option
	}{
		{line: "lint testdata/lens/broken.yaml --sample -", stdin: `{"_id":"a\nFORGED row","text":"one"}`, options: []lens.Option{forgetful()}},
		{line: "lint " + nothing, stdin: `{"_id":"a\nFORGED row"} {"_id":"a\nFORGED row"}`},
		{line: "lint " + packagesLens + " --sample -", stdin: `{"_id":"a\nFORGED row","priority":"none"}`},
		{line: "diff --show 1 testdata/lens/items.yaml --sample -", stdin: `{"_id":"regions/a/items/a\nFORGED row","price":5}`},
		{line: "diff " + nothing, stdin: `{"_id":"a\nFORGED row"}`},
		{line: "try testdata/lens/nothing.yaml", stdin: `{"_id":"a\nFORGED row","a\nFORGED row":1}`},
	} {
		out, err := runLens(t, c.stdin, c.line, c.options...)
		if strings.Contains(out, "\nFORGED") {
			t.Errorf("%s: %v: it prints a row of the record:\n%s", c.line, err, out)
		}
		if !strings.Contains(out, `a\nFORGED row`) && !strings.Contains(c.line, "diff "+nothing) {
			t.Errorf("%s: %v: it does not show the record: %s", c.line, err, out)
		}
	}
}

// TestMarksForgeNoRow: whoever can write to the databases chose what 'recover' reports.
func TestMarksForgeNoRow(t *testing.T) {
	t.Parallel()
	d := upgradestate.New("services/a/deployments/b", "v1", 4)
	d.Namespaces = []upgradestate.Namespace{{Version: "v1"}}
	state, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	e := identity.Evidence{Deployment: d.Name, Found: map[string]identity.Found{"v1": {
		Mark:   identity.Mark{Epoch: 1, Current: true, State: string(state), Next: &identity.Next{ID: "b-1\nFORGED row", Epoch: 1, To: "v1"}},
		Claims: []record.Claim{{Kind: "a\nFORGED row", ID: "c"}},
	}}}
	p := &process.Process{Config: config.Config{DBs: []config.DB{{Version: "v1", Endpoint: config.NewSecret("mongodb://127.0.0.1:1")}}}}
	var said strings.Builder
	if _, err := (&recovery{}).rebuild(t.Context(), e, p, nil, &said); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(said.String(), "\nFORGED") || !strings.Contains(said.String(), `kind a\nFORGED row of v1 was never used`) {
		t.Errorf("recover prints %q", &said)
	}
	said.Reset()
	linef(&said, "%s\t%d\t%v\n%s", "a\nb", 7, errors.New("c\td"), time.Second)
	if want := "a\\nb\t7\tc\\td\n1s"; said.String() != want {
		t.Errorf("it is %q, want %q", &said, want)
	}
}

// TestPrintable: text stays as it is, also where a character is written in two parts.
func TestPrintable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "größe 日本 \\x1b 'a'": "größe 日本 \\x1b 'a'", evil: `id\x1b[2J\x1b]0;owned\a\nFORGED row\r\u202e\u009b31m\xff`, "\uFFFD": `\ufffd`,
	} {
		if got := printable.Line(text); got != want {
			t.Errorf("%q is printed as %s, want %s", text, got, want)
		}
	}
	var j strings.Builder
	text := "a\u009b\u202e日\U000e0001\u007f\n"
	if _, err := (quoted{&j, new(string), true}).Write([]byte(text)); err != nil || j.String() != `a\u009b\u202e日\udb40\udc01\u007f`+"\n" {
		t.Errorf("as JSON %q, %v", j.String(), err)
	}
	var b strings.Builder
	q := quoted{&b, new(string), false}
	for i := range []byte("a\t日\x1b本\n") {
		if n, err := q.Write([]byte("a\t日\x1b本\n")[i : i+1]); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if b.String() != "a\t日\\x1b本\n" {
		t.Errorf("it is %q", b.String())
	}
}
