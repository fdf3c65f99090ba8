package upgradestate_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	us "dbcontroller.dev/upgradestate"
)

var update = flag.Bool("update", false, "rewrite the goldens in testdata and docs")

// TestScenarios replays testdata/*.txt: commands, then "----", then what they print.
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var d us.Deployment
			var out []string
			for _, block := range strings.Split(strings.TrimSpace(string(text)), "\n\n") {
				commands, _, _ := strings.Cut(block, "\n----")
				out = append(out, commands+"\n----\n"+play(t, &d, commands))
			}
			got := strings.Join(out, "\n\n") + "\n"
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got != string(text) && !*update {
				t.Errorf("%s differs (run with -update and review):\n%s", file, got)
			}
		})
	}
}

// play runs commands: "new <version> <ring>", "namespace <version> <kind>:<class> ...",
// "do" (what a driver does now, confirmed), "until <step>", "places", or an event with
// its fields.
func play(t *testing.T, d *us.Deployment, commands string) string {
	t.Helper()
	var out []string
	for line := range strings.Lines(commands) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		switch words[0] {
		case "new":
			var ring int
			if _, err := fmt.Sscan(words[2], &ring); err != nil {
				t.Fatal(err)
			}
			*d = us.New("services/bbs/deployments/test", words[1], ring)
			out = append(out, show(*d))
		case "namespace":
			out = append(out, step(t, d, us.AnnounceNamespace{Namespace: namespace(words[1], words[2:], words[1] == d.CurrentVersion)}))
		case "do":
			out = append(out, drive(t, d)...)
		case "until":
			for range 20 {
				if d.Upgrade == nil || string(d.Upgrade.Step) == strings.Join(words[1:], "") {
					break
				}
				drive(t, d)
			}
			out = append(out, show(*d))
		case "places":
			out = append(out, showPlaces(*d))
		default:
			out = append(out, step(t, d, parse(t, words)))
		}
	}
	return strings.Join(out, "\n")
}

// drive applies what a driver reports of every present action.
func drive(t *testing.T, d *us.Deployment) []string {
	t.Helper()
	var out []string
	for _, a := range us.Actions(*d) {
		e := eventOf(a)
		out = append(out, fmt.Sprintf("%T -> %T", a, e), step(t, d, e))
	}
	if len(out) == 0 {
		return []string{"nothing to do"}
	}
	return out
}

func eventOf(a us.Action) us.Event {
	switch a := a.(type) {
	case us.Hold:
		return us.Held{ID: a.ID}
	case us.Execute:
		return us.Confirmed{Version: a.Version, Kind: a.Place.Kind, To: a.Pending.To, From: a.Pending.From}
	case us.Prevent:
		return us.Prevented{Version: a.Version, Kind: a.Place.Kind, To: a.Pending.To}
	case us.Unfence:
		return us.Unfenced{Version: a.Version, Kind: a.Place.Kind, From: a.From}
	case us.AwaitReports:
		return us.Report{ID: a.ID, State: a.State, Attempt: a.Attempt, Fences: a.Fences, Shards: a.Shards}
	case us.StartSwitch:
		return a
	case us.Drained:
		return a
	case us.Flip:
		return a
	case us.FinishAbort:
		return us.Aborted{ID: a.ID}
	default:
		panic(fmt.Sprintf("unknown action %T", a))
	}
}

func namespace(version string, kinds []string, current bool) us.Namespace {
	ns := us.Namespace{Version: version, Location: "mongodb/" + version}
	for _, spec := range kinds {
		name, class, _ := strings.Cut(spec, ":")
		class, fixed := strings.CutPrefix(class, "fixed-")
		k := us.Kind{Kind: name, Fence: class, Fixed: fixed, ID: version + name, Physical: name + ".n1"}
		if fixed && current {
			k.Physical = name
		}
		ns.Kinds = append(ns.Kinds, k)
	}
	return ns
}

// step applies an event and checks what holds of every transition.
func step(t *testing.T, d *us.Deployment, e us.Event) string {
	t.Helper()
	next, err := us.Apply(*d, e)
	if err != nil {
		return "refused: " + err.Error()
	}
	if err := us.Validate(next); err != nil {
		t.Fatalf("%+v leads to an invalid record: %v", e, err)
	}
	if reflect.DeepEqual(next, *d) {
		return "no-op"
	}
	*d = next
	return show(next)
}

var events = []us.Event{
	us.AnnounceAvailable{}, us.Begin{}, us.Report{}, us.Withdraw{}, us.StartSwitch{}, us.Held{}, us.Confirmed{},
	us.Unfenced{}, us.Drained{}, us.Flip{}, us.Abort{}, us.Aborted{},
}

// parse reads "Begin ID=u1 Shards=2": the name of an event and its fields.
func parse(t *testing.T, words []string) us.Event {
	t.Helper()
	i := slices.IndexFunc(events, func(e us.Event) bool { return reflect.TypeOf(e).Name() == words[0] })
	if i < 0 {
		t.Fatalf("unknown command %q", words[0])
	}
	fields := map[string]any{}
	for _, w := range words[1:] {
		name, text, _ := strings.Cut(w, "=")
		var v any = text
		if json.Valid([]byte(text)) {
			v = json.RawMessage(text)
		}
		fields[name] = v
	}
	if a, ok := events[i].(us.AnnounceAvailable); ok {
		a.Available = us.Available{TargetVersion: fields["TargetVersion"].(string), TransformHash: fields["TransformHash"].(string)}
		return a
	}
	text, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	e := reflect.New(reflect.TypeOf(events[i]))
	if err := json.Unmarshal(text, e.Interface()); err != nil {
		t.Fatalf("%v: %v", words, err)
	}
	return e.Elem().Interface().(us.Event)
}

// show is a record in one line for itself and one for each kind that is not at rest.
func show(d us.Deployment) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s epoch %d", d.CurrentVersion, d.Epoch)
	if u := d.Upgrade; u != nil {
		fmt.Fprintf(&b, ", %s to %s %s %s attempt %d ready %v", u.ID, u.TargetVersion, u.State, u.Step, u.Attempt, u.ReadyShards)
	}
	for _, ns := range d.Namespaces {
		for _, k := range ns.Kinds {
			fmt.Fprintf(&b, "\n  %s %s at %s", ns.Version, k.Kind, k.Physical)
			for _, f := range []struct {
				on   bool
				name string
			}{{k.Hidden, "hidden"}, {k.Sealed, "sealed"}, {k.Fenced != "", "fenced " + k.Fenced}} {
				if f.on {
					b.WriteString(", " + f.name)
				}
			}
			if p := k.Pending; p != nil {
				fmt.Fprintf(&b, ", pending %s %s to %s", p.Reason, p.From, p.To)
			}
		}
	}
	return b.String()
}

func showPlaces(d us.Deployment) string {
	names := func(places []us.Place) string {
		var ns []string
		for _, p := range places {
			ns = append(ns, p.Name)
		}
		return strings.Join(ns, "|")
	}
	version, writes := us.WritePlaces(d)
	out := []string{fmt.Sprintf("write %s: %s", version, names(writes)), fmt.Sprintf("apply allowed: %t", us.ApplyAllowed(d))}
	for _, ns := range d.Namespaces {
		for _, k := range ns.Kinds {
			out = append(out, fmt.Sprintf("%s %s: read %s, engine %s", ns.Version, k.Kind,
				names(us.ReadPlaces(d, ns.Version)[k.Kind]), names(us.EnginePlaces(d, ns.Version)[k.Kind])))
		}
	}
	return strings.Join(out, "\n")
}
