package copies

import (
	"bytes"
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/resource/region"
	"dbcontroller.dev/vrunner"
)

// walk applies the events of one watch.
type walk struct {
	f *Follower
	// until the owner has sent its initial state: the last name of it, and the own copies behind.
	level bool
	last  string
	page  []record.Record
	after string // the key of the last copy of page
	done  bool   // there are no copies behind page
}

// pageMost and pageBytes bound the copies that are read at a time.
const (
	pageMost  = 50
	pageBytes = 4 << 20
)

// apply writes a batch of events. Of several changes of one name only the last one counts.
func (w *walk) apply(ctx context.Context, batch []Event) error {
	puts := map[string]bson.Raw{} // by name; nil deletes
	var order, equal []string
	set := func(name string, doc bson.Raw) {
		if _, there := puts[name]; !there {
			order = append(order, name)
		}
		puts[name] = doc
	}
	reset := func() { order, equal, puts = nil, nil, map[string]bson.Raw{} }
	flush := func() error {
		order, err := w.f.keepLeft(ctx, order, puts)
		if err == nil {
			err = w.f.write(ctx, order, puts)
		}
		if err == nil {
			err = w.f.noteBoth(ctx, order, puts, equal)
		}
		reset()
		return err
	}
	// reach passes the copies up to a name and deletes those that the owner does not have.
	reach := func(name string, doc bson.Raw) (same bool, err error) {
		for more := true; more; {
			var gone []string
			if same, gone, more, err = w.pass(ctx, name, doc); err != nil {
				return false, err
			}
			for _, name := range gone {
				set(name, nil)
			}
			// The owner may have deleted any number of records.
			if len(order) >= batchMost {
				if err := flush(); err != nil {
					return false, err
				}
			}
		}
		return same, nil
	}
	for _, ev := range batch {
		switch ev.Type {
		case vrunner.EventPut:
			if err := w.f.refusal(ev); err != nil {
				w.f.leave(ev.Name, err)
				ev.Doc = nil // an old copy of it goes
			}
			if w.level || ev.Name <= w.last {
				set(ev.Name, ev.Doc)
				continue
			}
			same, err := reach(ev.Name, ev.Doc)
			if err != nil {
				return err
			}
			switch w.last = ev.Name; {
			case !same:
				set(ev.Name, ev.Doc)
			case ev.Doc != nil:
				equal = append(equal, ev.Name)
				w.f.noteLeft(ev.Name, ev.Doc)
			}
		case vrunner.EventDelete:
			w.f.settle(ev.Name)
			set(ev.Name, nil)
		case vrunner.EventLevel:
			if !w.level {
				if _, err := reach("", nil); err != nil {
					return err
				}
			}
			if err := flush(); err != nil {
				return err
			}
			w.level, w.page = true, nil
			w.f.level()
			if err := w.f.underTerm(ctx, nil); err != nil {
				return err
			}
		case vrunner.EventOther:
		}
	}
	return flush()
}

// next returns the key of the next copy behind those that were passed, with its document.
func (w *walk) next(ctx context.Context) (rec record.Record, ok bool, err error) {
	if len(w.page) == 0 && !w.done {
		prefix := region.CopyKey(w.f.cfg.Region, "")
		var more bool
		if w.page, more, err = w.f.cfg.Space.ListBounded(ctx, region.CopiesKind(w.f.cfg.Kind), prefix, w.after, pageMost, pageBytes); err != nil {
			return rec, false, err
		}
		w.done = !more
		if len(w.page) > 0 {
			w.after, _ = w.page[len(w.page)-1].Key.Name()
		}
	}
	if len(w.page) == 0 {
		return rec, false, nil
	}
	return w.page[0], true, nil
}

// pass walks over the copies up to a name, or over all of them if name is empty. It returns the names in
// between, which the owner does not have, and whether the copy of name equals doc; nil equals no copy. more reports that it stopped
// before, after batchMost names.
func (w *walk) pass(ctx context.Context, name string, doc bson.Raw) (same bool, gone []string, more bool, err error) {
	for len(gone) < batchMost {
		rec, ok, err := w.next(ctx)
		if err != nil || !ok {
			return doc == nil, gone, false, err
		}
		key, _ := rec.Key.Name()
		_, have, _ := region.OfCopy(key)
		if name != "" && have > name {
			return doc == nil, gone, false, nil
		}
		w.page = w.page[1:]
		if name == "" || have < name {
			w.f.noteLeft(have, rec.Doc)
			gone = append(gone, have)
			continue
		}
		copied, err := region.WithID(doc, key)
		return err == nil && rec.Err == nil && bytes.Equal(copied, rec.Doc), gone, false, nil
	}
	return false, gone, true, nil
}

// write writes copies under the term of this follower. A nil document deletes.
func (f *Follower) write(ctx context.Context, order []string, puts map[string]bson.Raw) error {
	const most = 4 << 20 // bytes of one write; databases take at least twice that
	var ms []record.Mutation
	size := 0
	for _, name := range order {
		doc := puts[name]
		key := region.CopyKey(f.cfg.Region, name)
		if doc != nil {
			f.settle(name)
			var err error
			if doc, err = region.WithID(doc, key); err != nil {
				f.leave(name, err)
				doc = nil
			}
		}
		if len(ms) == batchMost || size > 0 && size+len(doc) > most {
			if err := f.inParts(ctx, ms); err != nil {
				return err
			}
			ms, size = nil, 0
		}
		ms = append(ms, record.Mutation{Kind: region.CopiesKind(f.cfg.Kind), Key: record.StringKey(key), Doc: doc})
		size += len(doc)
	}
	if len(ms) == 0 {
		return nil
	}
	return f.inParts(ctx, ms)
}

// inParts writes copies in as few writes as the database takes. A record that the database refuses
// alone has no copy.
func (f *Follower) inParts(ctx context.Context, ms []record.Mutation) error {
	err := f.underTerm(ctx, ms)
	switch {
	case !errors.Is(err, record.ErrRefused): // record.ErrOversize is one
		return err
	case len(ms) == 1 && ms[0].Doc == nil:
		return err
	case len(ms) == 1:
		key, _ := ms[0].Key.Name()
		_, name, _ := region.OfCopy(key)
		f.leave(name, err)
		// The old copy would show a state that passed.
		return f.underTerm(ctx, []record.Mutation{{Kind: ms[0].Kind, Key: ms[0].Key}})
	}
	if err := f.inParts(ctx, ms[:len(ms)/2]); err != nil {
		return err
	}
	return f.inParts(ctx, ms[len(ms)/2:])
}

// stateKey is the key of the state of these copies. Names of kinds and regions have no colon.
func (f *Follower) stateKey() string { return f.cfg.Kind + ":" + f.cfg.Region }

// state is the document of the state of copies.
type state struct {
	ID    string `bson:"_id"`
	Term  int64  `bson:"term"`  // grows with each follower
	Whole bool   `bson:"whole"` // they were complete at some time
	// At is the latest time at which they are known to follow their owner; zero: never.
	At time.Time `bson:"at"`
}

// takeOver raises the term, so that the writes of all earlier followers fail.
func (f *Follower) takeOver(ctx context.Context) error {
	var have state
	own := record.Mutation{Kind: region.StateKind, Key: record.StringKey(f.stateKey()), Absent: true}
	rec, err := f.cfg.Space.Get(ctx, region.StateKind, f.stateKey())
	switch {
	case errors.Is(err, record.ErrNotFound):
	case err != nil:
		return err
	default:
		if err := bson.Unmarshal(rec.Doc, &have); err != nil {
			return err
		}
		own.Absent, own.Match = false, record.MatchDoc(rec.Doc)
	}
	have.ID, have.Term = f.stateKey(), have.Term+1
	if own.Doc, err = bson.Marshal(have); err != nil {
		return err
	}
	if err := f.cfg.Space.Write(ctx, []record.Mutation{own}); err != nil {
		return err
	}
	f.term = have.Term
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report.Known, f.report.Whole, f.at = true, have.Whole, have.At
	// Nobody followed since.
	if !have.At.IsZero() {
		f.report.Away = have.At
	}
	return nil
}

// underTerm writes copies if this follower is still the latest one.
func (f *Follower) underTerm(ctx context.Context, ms []record.Mutation) error {
	report := f.Report()
	if report.Away.IsZero() {
		f.at = time.Now()
	}
	doc, err := bson.Marshal(state{ID: f.stateKey(), Term: f.term, Whole: report.Whole, At: f.at})
	if err != nil {
		return err
	}
	term := bson.Raw(doc).Lookup("term")
	own := record.Mutation{Kind: region.StateKind, Key: record.StringKey(f.stateKey()), Doc: doc, Match: &record.Match{Path: "term", Value: term}}
	err = f.cfg.Space.Write(ctx, append([]record.Mutation{own}, ms...))
	// The copies have no conditions, so only the term can differ.
	if errors.Is(err, record.ErrMismatch) || errors.Is(err, record.ErrNotFound) {
		return ErrOutdated
	}
	return err
}
