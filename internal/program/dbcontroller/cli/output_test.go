package cli

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/base/printable"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/clitest"
	"dbcontroller.dev/upgradestate"
)

// TestNothingIsACommandOfTheTerminal: whatever keys and names hold, no verb prints a command of the
// terminal, or a row that is none. JSON has them in its escapes.
func TestNothingIsACommandOfTheTerminal(t *testing.T) {
	t.Parallel()
	text := strings.ToValidUTF8(evilText, "")
	d := clitest.Sample()
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

// evilText is what a user of the service chose as an id: it clears the screen, sets the title, forges a
// row, and turns the direction of the text behind it.
const evilText = "id\x1b[2J\x1b]0;owned\x07\nFORGED row\r\u202e\u009b31m\xff"

func TestJSONReadsAsOperatorsExpect(t *testing.T) {
	t.Parallel()
	f := &fake{deployment: clitest.Sample()}
	out, _, err := run(t, "get", "deployment", "--json", "--server", serve(t, f))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(out, "\n") != 1 || !strings.HasSuffix(out, "}\n") {
		t.Errorf("not one line: %q", out)
	}
	const want = `{"name":"services/bbs.example.com/deployments/us-west2","currentVersion":"v1",` +
		`"upgradeState":{"targetVersion":"v2","readyShards":[0,2],"pendingShards":[1,3],"state":"INITIAL_SYNCING"`
	if !strings.HasPrefix(out, want) {
		t.Errorf("begins with %.220s", out)
	}
	if !json.Valid([]byte(out)) {
		t.Errorf("not JSON: %s", out)
	}
}

// TestVerbsOfReasonsExist: what resolves a reason names commands that there are.
func TestVerbsOfReasonsExist(t *testing.T) {
	t.Parallel()
	root := Command(nil)
	for code, r := range upgradestate.BlockCodes {
		for _, quoted := range regexp.MustCompile(`'([^']+)'`).FindAllStringSubmatch(r.Act, -1) {
			var verb []string
			for _, word := range strings.Fields(quoted[1]) {
				if !strings.HasPrefix(word, "-") {
					verb = append(verb, word)
				}
			}
			if cmd, rest, err := root.Find(verb); err != nil || cmd == root || len(rest) > 0 {
				t.Errorf("%s: there is no command %s", code, quoted[1])
			}
		}
	}
}
