package app

import (
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/examples/packages"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/upgradestate"
)

func sampleShapes(t *testing.T) shapes {
	t.Helper()
	l, err := lens.Parse(lensFile, lensText)
	if err != nil {
		t.Fatal(err)
	}
	return shapes{l}
}

func doc(t *testing.T, d bson.D) bson.Raw {
	t.Helper()
	raw, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestPrintDocIgnoresOrderOnly(t *testing.T) {
	t.Parallel()
	a := doc(t, bson.D{{Key: "_id", Value: 1}, {Key: "b", Value: bson.D{{Key: "x", Value: 1}, {Key: "y", Value: 2}}}})
	same := doc(t, bson.D{{Key: "b", Value: bson.D{{Key: "y", Value: 2}, {Key: "x", Value: 1}}}, {Key: "_id", Value: 1}})
	if printDoc(a) != printDoc(same) {
		t.Error("the order of fields makes a difference")
	}
	for name, d := range map[string]bson.D{
		"value": {{Key: "_id", Value: 1}, {Key: "b", Value: bson.D{{Key: "x", Value: 1}, {Key: "y", Value: 3}}}},
		"type":  {{Key: "_id", Value: int64(1)}, {Key: "b", Value: bson.D{{Key: "x", Value: 1}, {Key: "y", Value: 2}}}},
		"field": {{Key: "_id", Value: 1}, {Key: "b", Value: bson.D{{Key: "x", Value: 1}, {Key: "y", Value: 2}}}, {Key: "c", Value: 1}},
	} {
		if printDoc(a) == printDoc(doc(t, d)) {
			t.Errorf("another %s makes no difference", name)
		}
	}
}

// The application writes the same on both versions: an update changes the documents of both in the
// same way, and a document of its own has the same shape in both.
func TestOneWriteFitsBothShapes(t *testing.T) {
	t.Parallel()
	s := sampleShapes(t)
	docs, err := packages.Load(200)
	if err != nil {
		t.Fatal(err)
	}
	differ := 0
	for i, before := range docs {
		set, after, err := changes(before, int64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		was, err := s.lens.Up(before, nil)
		if err != nil {
			t.Fatal(err)
		}
		want, err := s.state(after)
		if err != nil {
			t.Fatal(err)
		}
		if got := printDoc(applied(t, was, set)); got != want.v2 {
			t.Fatalf("record %d: $set in the new shape gives %.300q, want %.300q", i, got, want.v2)
		}
		if got := printDoc(applied(t, before, set)); got != want.v1 {
			t.Fatalf("record %d: $set in the old shape gives %.300q, want %.300q", i, got, want.v1)
		}
		if want.v1 != want.v2 {
			differ++
		}
	}
	if differ != len(docs) {
		t.Errorf("the lens changes %d of %d documents", differ, len(docs))
	}
	own, err := newPackage("demo-1-1", "demo-1-1", 7)
	if err != nil {
		t.Fatal(err)
	}
	if both, err := s.state(own); err != nil || both.v1 != both.v2 {
		t.Errorf("a document of the application is %q in v1 and %q in v2: %v", both.v1, both.v2, err)
	}
}

// applied is what MongoDB's $set does with top-level fields.
func applied(t *testing.T, raw bson.Raw, set bson.D) bson.Raw {
	t.Helper()
	var d bson.D
	if err := bson.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
next:
	for _, f := range set {
		for i := range d {
			if d[i].Key == f.Key {
				d[i].Value = f.Value
				continue next
			}
		}
		d = append(d, f)
	}
	return doc(t, d)
}

func TestProcessStatesDiffer(t *testing.T) {
	t.Parallel()
	p := created("lrp-0-1", 1)
	q := p.withDefinition("definition-3", 3)
	states := []state{p.state(), p.updated(2).state(), q.state(), q.activated("definition-3").state()}
	seen := map[string]bool{}
	for _, s := range states {
		if seen[s.v2] {
			t.Error("two states print alike")
		}
		seen[s.v2] = true
	}
	if p.state().v1 != q.state().v1 {
		t.Error("v1 shows a definition that is not active")
	}
	if len(p.definitions) != 1 {
		t.Error("adding a definition changed the process before it")
	}
	if got, want := outline(q.state()), "operation 1, active lrp-0-1 of definition-3 lrp-0-1"; got != want {
		t.Errorf("outline %q, want %q", got, want)
	}
	d := &bbsv2.LRPDeployment{}
	if err := proto.Unmarshal([]byte(q.state().v2), d); err != nil || len(d.GetDefinitions()) != 2 {
		t.Errorf("print holds %d definitions, %v", len(d.GetDefinitions()), err)
	}
}

func TestMetricsOfTheCopy(t *testing.T) {
	t.Parallel()
	var c copied
	err := readMetrics(strings.NewReader(`# TYPE dbcontroller_shards gauge
dbcontroller_shards{deployment="services/a/deployments/b",state="copying"} 1
dbcontroller_shards{deployment="services/a/deployments/b",state="following"} 1
dbcontroller_copied_records{deployment="services/a/deployments/b"} 1.35e+03
go_goroutines 12
`), &c)
	if err != nil {
		t.Fatal(err)
	}
	if want := (copied{docs: 1350, shards: 2, done: 1}); c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
}

func TestTimelineNotesTheSwitch(t *testing.T) {
	t.Parallel()
	var said []string
	line := newTimeline(func(s string) { said = append(said, s) })
	base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	d := upgradestate.New("services/a/deployments/b", oldVersion, 16)
	up := func(state upgradestate.Phase, s upgradestate.Step) upgradestate.Deployment {
		e := d
		e.Upgrade = &upgradestate.Upgrade{State: state, Step: s}
		return e
	}
	flipped := d
	flipped.CurrentVersion = newVersion
	for i, e := range []upgradestate.Deployment{
		d, up(upgradestate.InitialSyncing, ""), up(upgradestate.Switching, upgradestate.StepHold),
		up(upgradestate.Switching, upgradestate.StepFence), flipped,
	} {
		line.observe(e, base.Add(time.Duration(i)*time.Second))
	}
	start, switches, record := line.window()
	if !start.Equal(base.Add(2*time.Second)) || switches != 1 || record.CurrentVersion != newVersion {
		t.Errorf("start %s, %d switches, version %s", start, switches, record.CurrentVersion)
	}
	if got, want := strings.Join(said, "|"), "INITIAL_SYNCING|SWITCHING HOLD|SWITCHING FENCE|flip: v2 is active"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
}
