package cli

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/base/printable"
)

// TestNothingIsACommandOfTheTerminal: whatever keys and names hold, no verb prints a command of the
// terminal, or a row that is none. JSON has them in its escapes.
func TestNothingIsACommandOfTheTerminal(t *testing.T) {
	t.Parallel()
	text := strings.ToValidUTF8(evilText, "")
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

// evilText is what a user of the service chose as an id: it clears the screen, sets the title, forges a
// row, and turns the direction of the text behind it.
const evilText = "id\x1b[2J\x1b]0;owned\x07\nFORGED row\r\u202e\u009b31m\xff"
