package lint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
)

// Subject is a transformer under test, and the fields that it is known to lose.
type Subject struct {
	Spec transform.Spec
	// LostUp and LostDown are the results of lens.Lost.
	LostUp, LostDown []lens.Loss
	// Mapping maps the fields of the old main record to the new one, for Compare. Nil means
	// unknown.
	Mapping transform.Mapping
	// Back maps the fields of the new main record to the old one. Nil means unknown.
	Back transform.Mapping
}

// Options limits a run. The zero Options uses the defaults.
type Options struct {
	Limit       int // records of each lens's own kind; 0: all. Records of its other kinds follow
	MaxDocument int // largest size of a document in bytes; 0: 16 MiB
	Examples    int // names for each finding; 0: 3
	Memory      int // bytes to remember in memory before files are used; 0: 256 MiB
	// Judge, if not nil, tests the records of the new version.
	Judge Judge
	// Written provides records as the new version's applications write them. Run transforms them
	// down and up again.
	Written []Sample
}

func (o Options) withDefaults() Options {
	if o.MaxDocument == 0 {
		o.MaxDocument = 16 << 20
	}
	if o.Examples == 0 {
		o.Examples = 3
	}
	if o.Memory == 0 {
		o.Memory = defaultMemory
	}
	return o
}

// directions compiles subjects like the engine, but without the reversal check. The laws report
// which property a result breaks, so it must not be refused before.
func directions(subjects []Subject) (up, down transform.Direction, err error) {
	// A registry applies the same checks as in a deployment.
	r := transform.NewRegistry("lens")
	var specs []transform.Spec
	for _, s := range subjects {
		specs = append(specs, s.Spec)
	}
	if err := r.Add("old", "new", specs...); err != nil {
		return nil, nil, err
	}
	if up, err = r.Direction("old", "new"); err != nil {
		return nil, nil, err
	}
	if down, err = r.Direction("new", "old"); err != nil {
		return nil, nil, err
	}
	return transform.Unchecked(up), transform.Unchecked(down), nil
}

func mainKinds(subjects []Subject, side func(transform.Spec) transform.Side) []string {
	var out []string
	for _, s := range subjects {
		out = append(out, side(s.Spec).Kinds[0].Name)
	}
	return out
}

func oldSide(s transform.Spec) transform.Side { return s.Old }
func newSide(s transform.Spec) transform.Side { return s.New }

// Run tests subjects on samples.
func Run(ctx context.Context, subjects []Subject, samples []Sample, o Options) (rep *Report, err error) {
	began := time.Now()
	o = o.withDefaults()
	// Groups are tested as they are read. Only keys and findings are remembered.
	c := checker{Options: o, report: newReport(subjects, o), keys: spill{limit: o.Memory}, failures: map[failureKey]*Failure{}}
	defer func() { err = errors.Join(err, c.keys.close()) }()
	if c.up, c.down, err = directions(subjects); err != nil {
		return nil, err
	}
	for i, s := range subjects {
		c.specs = append(c.specs, c.declared(i, s))
	}
	all := sampled{from: c.up, limit: o.Limit, memory: o.Memory, mains: mainKinds(subjects, oldSide), bad: func(r record.Record, err error) {
		c.fail("up", []record.Record{r}, err)
	}}
	group := func(id transform.GroupID, x []record.Record) error { return c.group(ctx, id, x) }
	if err := all.each(ctx, samples, group); err != nil {
		return nil, err
	}
	// Judge the last records, which did not fill a trial.
	if err := c.judge(ctx); err != nil {
		return nil, err
	}
	c.report.Refused = c.refused()
	if err := c.collisions(&c.keys); err != nil {
		return nil, err
	}
	c.report.Sample = all.read
	if err := c.written(ctx, mainKinds(subjects, newSide)); err != nil {
		return nil, err
	}
	c.finish(time.Since(began))
	return c.report, nil
}

// checker is the state of one run.
type checker struct {
	Options
	up, down         transform.Direction
	specs            []tried
	report           *Report
	failures         map[failureKey]*Failure
	trying           trying
	keys             spill // target records with the sources that made them
	upTime, downTime time.Duration
	upDone, downDone int64
}

// tried is the state of one subject.
type tried struct {
	old, now         string // the main kinds
	lostUp, lostDown []declared
	before           bson.Raw // the previous record, for the law that needs another state
}

func newReport(subjects []Subject, o Options) *Report {
	r := &Report{Losses: Losses(subjects), Failures: []Failure{}, Size: Size{Limit: o.MaxDocument}}
	for _, l := range laws {
		r.Laws = append(r.Laws, Law{Name: l.name, Says: l.says})
	}
	if len(o.Written) > 0 {
		r.Laws = append(r.Laws, Law{Name: writtenLaw, Says: "a record that applications of the new version write survives the way through the old version"})
	}
	return r
}

// group tests one group.
func (c *checker) group(ctx context.Context, id transform.GroupID, x []record.Record) error {
	c.report.Groups++
	began := time.Now()
	y, err := run(c.up, id, x, nil)
	c.upTime += time.Since(began)
	if err != nil {
		c.fail("up", x, err)
		return nil
	}
	c.upDone += int64(len(x))
	c.size("up", y)
	if err := c.try(ctx, y); err != nil {
		return err
	}
	for _, r := range y {
		// Collisions can only be found when all keys are known.
		if err := c.keys.add(r.Kind+"\x00"+string(r.Key), []byte(nameOf(x, c.specs[id.Spec].old))); err != nil {
			return err
		}
	}
	// Measure the transformations alone, without reading and judging.
	began = time.Now()
	// Without a complement, to find the fields that the lens loses.
	back, err := run(c.down, id, y, nil)
	c.downTime += time.Since(began)
	if err != nil {
		c.fail("down", x, err)
		return nil
	}
	c.downDone += int64(len(y))
	c.size("down", back)
	t := &c.specs[id.Spec]
	c.check(t, id, x, y, back)
	// A group of several records cannot get another name.
	if len(x) == 1 {
		t.before = x[0].Doc
	}
	return nil
}

// nameOf returns the name of a group in reports: the key of its main record.
func nameOf(rs []record.Record, main string) string {
	for _, r := range rs {
		if r.Kind == main {
			return r.Key.String()
		}
	}
	return rs[0].Kind + " " + rs[0].Key.String()
}

func (c *checker) size(direction string, rs []record.Record) {
	s := &c.report.Size
	for _, r := range rs {
		if len(r.Doc) > s.Limit {
			s.Over++
			if len(s.Names) < c.Examples {
				s.Names = append(s.Names, fmt.Sprintf("%s of %s", r.Key, r.Kind))
			}
		}
		// Report the largest document even below the limit: it shows how much room is left.
		if s.Largest == nil || len(r.Doc) > s.Largest.Bytes {
			s.Largest = &Document{direction, r.Kind, r.Key.String(), len(r.Doc)}
		}
	}
}

// collisions finds the target keys that several groups make.
func (c *checker) collisions(keys *spill) error {
	type made struct {
		by    string
		again bool
	}
	seen := map[string]made{}
	out := &c.report.Collisions
	return keys.each(func(key string, e [][]byte) error {
		first, there := seen[key]
		if !there {
			seen[key] = made{by: string(e[0])}
			return nil
		}
		// Count each key once, however many groups make it.
		if first.again {
			return nil
		}
		seen[key] = made{first.by, true}
		out.Keys++
		if len(out.Examples) < c.Examples {
			kind, k, _ := cutKey(key)
			out.Examples = append(out.Examples, Collision{kind, k.String(), []string{first.by, string(e[0])}})
		}
		return nil
	}, func() error { clear(seen); return nil })
}

func cutKey(s string) (kind string, key record.Key, ok bool) {
	for i := range len(s) {
		if s[i] == 0 {
			return s[:i], record.Key(s[i+1:]), true
		}
	}
	return s, "", false
}

// finish sorts the findings, the most frequent first.
func (c *checker) finish(took time.Duration) {
	for _, f := range c.failures {
		c.report.Failures = append(c.report.Failures, *f)
	}
	slices.SortFunc(c.report.Failures, compareFailures)
	c.report.Rate = Rate{Up: rate(c.upDone, c.upTime), Down: rate(c.downDone, c.downTime), Seconds: took.Seconds()}
}

func rate(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}
