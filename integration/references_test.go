package integration_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	libraryv1 "dbcontroller.dev/gen/library/v1"
	libraryv2 "dbcontroller.dev/gen/library/v2"
	"dbcontroller.dev/resource"
)

// One service has branches and rooms, and gives both other names: those of branches follow from
// the old ones, those of rooms hold the city as well. The other one has books, each of which
// names its branch and its room.
const (
	branchesLens = `
kinds: {from: branches, to: branches}
key: {from: "branches/{branch}", to: "cities/{city}/branches/{branch}", with: {city: graz}}
operations: []
`
	roomsLens = `
kinds: {from: rooms, to: rooms}
key: {from: "rooms/{room}", to: "cities/{city}/rooms/{room}", with: {city: {field: city}}}
operations: []
`
	booksReferences = `
imports: {places: [%s, %s]}
operations:
  - reference: {field: branch, kind: branches, service: places, both: branches}
  - reference: {field: room, kind: rooms, service: places, both: rooms}
`
	booksUpdates = `imports:
- service: places
  deployment: %s
  versions: [v1, v2]
  dbs:
  - {namespace: places/v1, backend: mongo, apiVersion: v1, mongo: {endpoint: "$(MONGO_V1)", database: %s}}
  - {namespace: places/v2, backend: mongo, apiVersion: v2, mongo: {endpoint: "$(MONGO_V2)", database: %s}}
updates:
- {name: places-both, kind: books, version: v1, lens: references.yaml, references: both}
- {name: places-new, kind: books, version: v1, lens: references.yaml, references: new}
- {name: places-old, kind: books, version: v1, lens: references.yaml, references: old}
`
)

// Names of places in both versions.
var placeNames = map[string]map[string]func(i int) string{
	"branches": {
		"v1": func(i int) string { return fmt.Sprintf("branches/b%03d", i) },
		"v2": func(i int) string { return fmt.Sprintf("cities/graz/branches/b%03d", i) },
	},
	"rooms": {
		"v1": func(i int) string { return fmt.Sprintf("rooms/r%03d", i) },
		"v2": func(i int) string { return fmt.Sprintf("cities/%s/rooms/r%03d", cityOf(i), i) },
	},
}

func cityOf(i int) string { return []string{"graz", "wien", "linz"}[i%3] }

const (
	places = 60  // of each kind, when it begins
	still  = 300 // books that no client changes
	moving = 300 // books that clients change
)

// shelves is the service of places, and that of books.
type shelves struct {
	t             *testing.T
	places, books *system
	v1            *resource.Table[*libraryv1.Book]
	v2            *resource.Table[*libraryv2.Book]

	both         atomic.Bool // writers of books list both names
	reads, wrote atomic.Int64
	stop         func() // the traffic

	mu    sync.Mutex
	made  int            // places of each kind
	holds map[string]int // by book: the place that its writer was told it has
}

// TestReferences: one service gives its records other keys and switches under traffic. The other
// one, which refers to them, holds both keys before, the new ones afterwards and the old ones
// after the rollback, each by a data update under its own traffic. Filters by either name answer
// the same all the time in both versions of its API, and in the end no reference leads nowhere.
func TestReferences(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w := newShelves(ctx, t, booksUpdates)
	w.run(ctx)
	w.refused(ctx, "places-new", "it leaves new keys of branches of places (version v2), but "+w.places.name+" serves v1: wait for its switch, or hold both keys")
	w.plans(ctx, "v2", "run a data update there with references: new, unless one follows by itself (updates[].follow), or hold both keys before it; it has not run a data update of books lately",
		"data update places-new of v1 leaves new keys of rooms of "+w.places.name+", those of v2, which serves v1: until its switch these keys find nothing")
	w.both.Store(true)
	w.update(ctx, "places-both")
	w.held(ctx)
	w.places.beginTo(ctx, "v2")
	w.places.await(ctx, "the flip", flipped("v2"))
	w.both.Store(false)
	w.update(ctx, "places-new")
	w.stop()
	w.settled(ctx, "places-new", "v2")

	w.run(ctx)
	w.plans(ctx, "v1", "with references: old, unless one follows by itself (updates[].follow), or hold both keys before it; its latest data update of books is places-new: done",
		"data update places-new of v1 leaves new keys of rooms of "+w.places.name+", those of v2, which serves v2")
	w.refused(ctx, "places-old", "serves v2: wait for its switch")
	w.places.beginTo(ctx, "v1")
	w.places.await(ctx, "the flip back", flipped("v1"))
	w.update(ctx, "places-old")
	w.stop()
	w.settled(ctx, "places-old", "v1")
	t.Logf("%d lists by either name, %d writes of books, %d places of each kind", w.reads.Load(), w.wrote.Load(), w.made)
}

func newShelves(ctx context.Context, t *testing.T, updates string) *shelves {
	t.Helper()
	w := &shelves{t: t, made: places, holds: map[string]int{}}
	w.places = newSystem(ctx, t, settings{
		service: "places.example.com", copy: "{auto: true, workers: 2}", lens: branchesLens,
		kinds: "[{from: branches, to: branches, lens: packages.yaml}, {from: rooms, to: rooms, lens: rooms.yaml}]",
	})
	rooms := w.places.write("rooms.yaml", roomsLens)
	w.books = newSystem(ctx, t, settings{
		service: "books.example.com", lens: "operations: []", kinds: "[{from: books, to: books, lens: packages.yaml}]",
		further: fmt.Sprintf(updates, w.places.name, w.places.db["v1"].Name(), w.places.db["v2"].Name()),
	})
	w.books.write("references.yaml", fmt.Sprintf(booksReferences, w.places.dir+"/packages.yaml", rooms))
	w.places.edit(func(text string) string {
		return text + fmt.Sprintf("referrers:\n- {deployment: %s, kind: books, field: branch, of: branches}\n", w.books.name)
	})
	var branches, all, books []any
	for i := range places {
		branches = append(branches, bson.D{{Key: "_id", Value: placeNames["branches"]["v1"](i)}, {Key: "n", Value: i}})
		all = append(all, roomDoc("v1", i))
	}
	for i := range still + moving {
		books = append(books, bookDoc(bookName(i), "v1", i%places, false))
		w.holds[bookName(i)] = i % places
	}
	for coll, docs := range map[*mongo.Collection][]any{w.places.db["v1"].Collection("branches"): branches, w.places.db["v1"].Collection("rooms"): all, w.store().coll: books} {
		if _, err := coll.InsertMany(ctx, docs); err != nil {
			t.Fatal(err)
		}
	}
	w.api()
	w.places.controller("places", breakPoint{}).ready(ctx)
	w.books.controller("books", breakPoint{}).ready(ctx)
	w.books.controller("books-2", breakPoint{}).ready(ctx)
	w.books.awaitShards(ctx, "books", "books-2")
	w.places.awaitSync(ctx)
	return w
}

func bookName(i int) string { return fmt.Sprintf("books/%04d", i) }

func roomDoc(version string, i int) bson.D {
	d := bson.D{{Key: "_id", Value: placeNames["rooms"][version](i)}, {Key: "n", Value: i}}
	if version == "v1" {
		d = append(d, bson.E{Key: "city", Value: cityOf(i)})
	}
	return d
}

// bookDoc is a book as its application writes it.
func bookDoc(name, version string, place int, both bool) bson.D {
	branch, room := placeNames["branches"], placeNames["rooms"]
	d := bson.D{
		{Key: "_id", Value: name}, {Key: "name", Value: name}, {Key: "title", Value: "t"}, {Key: "revision", Value: int64(1)},
		{Key: "branch", Value: branch[version](place)}, {Key: "room", Value: room[version](place)},
	}
	if both {
		d = append(d, bson.E{Key: "branches", Value: namesOf("branches", place)}, bson.E{Key: "rooms", Value: namesOf("rooms", place)})
	}
	return d
}

// run starts the traffic of both services; stop ends it.
func (w *shelves) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var once sync.Once
	w.stop = func() { once.Do(func() { cancel(); wg.Wait() }) }
	w.t.Cleanup(w.stop)
	for i, step := range []func(context.Context, *rand.Rand) error{w.makePlace, w.writeBook, w.writeBook, w.list} {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(7, uint64(i)))
			for ctx.Err() == nil {
				if err := step(ctx, rng); err != nil && ctx.Err() == nil {
					w.t.Error(err)
					return
				}
			}
		})
	}
}

// begin begins a data update of books at whichever controller answers.
func (w *shelves) begin(ctx context.Context, task string) (id string, err error) {
	for _, api := range w.books.apis() {
		var res *connect.Response[dbv1.Deployment]
		if res, err = api.BeginUpdate(ctx, connect.NewRequest(&dbv1.BeginUpdateRequest{Task: task})); err == nil {
			return res.Msg.GetUpdate().GetId(), nil
		}
	}
	return "", err
}

func (w *shelves) refused(ctx context.Context, task, why string) {
	w.t.Helper()
	if _, err := w.begin(ctx, task); err == nil || !strings.Contains(err.Error(), why) {
		w.t.Errorf("%s begins: %v", task, err)
	}
}

// update runs a data update to its end.
func (w *shelves) update(ctx context.Context, task string) (outcome string) {
	w.t.Helper()
	id, err := w.begin(ctx, task)
	if err != nil {
		w.t.Fatal(err)
	}
	_, outcome = w.books.ended(ctx, id)
	w.t.Logf("%s: %s", task, outcome)
	if !strings.HasPrefix(outcome, "done; ") {
		w.t.Errorf("%s ended as %q", task, outcome)
	}
	return outcome
}

// plans checks what both services' plans say of the references.
func (w *shelves) plans(ctx context.Context, target, referrer, imported string) {
	w.t.Helper()
	for s, want := range map[*system]struct{ target, area, text string }{w.places: {target, "referrers", referrer}, w.books: {"v2", "imports", imported}} {
		res, err := s.apis()[0].Plan(ctx, connect.NewRequest(&dbv1.PlanRequest{TargetVersion: want.target}))
		if err != nil {
			w.t.Fatal(err)
		}
		if finding(res.Msg, want.area, want.text) == nil {
			w.t.Errorf("the plan of %s does not say %q of %s: %v", s.name, want.text, want.area, res.Msg.GetChecks())
		}
	}
}

// held checks that each book lists both names of what it holds.
func (w *shelves) held(ctx context.Context) {
	w.t.Helper()
	w.each(ctx, func(b book) error {
		place := 0
		if _, err := fmt.Sscanf(b.Branch[len(b.Branch)-3:], "%d", &place); err != nil {
			return err
		}
		if !slices.Equal(b.Branches, namesOf("branches", place)) || !slices.Equal(b.Rooms, namesOf("rooms", place)) {
			return fmt.Errorf("it holds %+v", b)
		}
		return nil
	})
}

// namesOf are both names of a place.
func namesOf(kind string, i int) []string {
	return []string{placeNames[kind]["v1"](i), placeNames[kind]["v2"](i)}
}

// settled checks, with nobody writing, that each reference is that of the version, and leads to
// the record that the book was last given.
func (w *shelves) settled(ctx context.Context, task, version string) {
	w.t.Helper()
	if outcome := w.update(ctx, task); !strings.HasSuffix(outcome, " 0 changed") {
		w.t.Errorf("%s at rest: %s", task, outcome)
	}
	there := map[string]map[string]bool{"branches": {}, "rooms": {}}
	for kind, names := range there {
		cursor, err := w.places.db[version].Collection(kind).Find(ctx, bson.D{})
		if err != nil {
			w.t.Fatal(err)
		}
		var docs []struct {
			ID string `bson:"_id"`
		}
		if err := cursor.All(ctx, &docs); err != nil {
			w.t.Fatal(err)
		}
		for _, d := range docs {
			names[d.ID] = true
		}
		if len(docs) < w.made {
			w.t.Errorf("%s has %d %s, and %d were made", version, len(docs), kind, w.made)
		}
	}
	dangling, books := 0, 0
	w.each(ctx, func(b book) error {
		books++
		place := w.holds[b.ID]
		if !there["branches"][b.Branch] || !there["rooms"][b.Room] {
			dangling++
		}
		if b.Branch != placeNames["branches"][version](place) || b.Room != placeNames["rooms"][version](place) || b.Branches != nil || b.Rooms != nil {
			return fmt.Errorf("it has place %d, and holds %+v", place, b)
		}
		return nil
	})
	if dangling > 0 || books != len(w.holds) {
		w.t.Errorf("%d of %d books lead nowhere, %d were written", dangling, books, len(w.holds))
	}
}

// book is what is stored of a book.
type book struct {
	ID       string   `bson:"_id"`
	Branch   string   `bson:"branch"`
	Room     string   `bson:"room"`
	Branches []string `bson:"branches"`
	Rooms    []string `bson:"rooms"`
}

func (w *shelves) each(ctx context.Context, check func(book) error) {
	w.t.Helper()
	cursor, err := w.store().coll.Find(ctx, bson.D{})
	if err != nil {
		w.t.Fatal(err)
	}
	var books []book
	if err := cursor.All(ctx, &books); err != nil {
		w.t.Fatal(err)
	}
	for _, b := range books {
		if err := check(b); err != nil {
			w.t.Errorf("%s: %v", b.ID, err)
			return
		}
	}
}
