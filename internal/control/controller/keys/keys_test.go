package keys

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/internal/store/recordtest"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// keyed is a deployment that serves v1, whose one kind is managed, and the keys of v1.
type keyed struct {
	*Keeper
	t     *testing.T
	coord *memcoord.Store
	keys  *sealed.Keys
	notes *recordtest.Notes
	store *memstore.Store
	way   *sealed.Namespace // the database by the login of now

	databases map[string]Database
}

func newKeyed(t *testing.T, keys *sealed.Keys) *keyed {
	t.Helper()
	c := memcoord.New()
	k := &keyed{t: t, coord: c, keys: keys, notes: &recordtest.Notes{}, store: memstore.New()}
	k.databases = map[string]Database{"v1": keyedConnection{k: k}}
	k.Keeper = New(Parts{
		Deployments: deployment.New(c, "services/a/deployments/b", deployment.Config{}), Log: zap.NewNop(),
		Databases: func() map[string]Database { return k.databases },
		Self:      func() string { return "controller " + k.ID },
	})
	k.login(k.store)
	k.notes.Begin(t, k.way.Sealer())
	_, err := k.Deployments.Create(t.Context(), "v1", 1)
	k.check(err)
	k.join("things")
	return k
}

func (k *keyed) check(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

// login has the database reached by another login.
func (k *keyed) login(ns record.Namespace) {
	k.way = sealed.New("v1", func() *sealed.Keys { return k.keys }, k.notes).Namespace(ns)
}

// join has a kind join v1.
func (k *keyed) join(kind string) {
	k.t.Helper()
	tok, err := k.way.Provision(k.t.Context(), record.KindSpec{Name: kind}, record.PhysicalName(kind, 1))
	k.check(err)
	k.apply(upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{
		Version: "v1", Location: "mem:v1", Kinds: []upgradestate.Kind{{Kind: kind, Physical: tok.Name, ID: tok.ID}},
	}})
}

func (k *keyed) apply(e upgradestate.Event) upgradestate.Deployment {
	k.t.Helper()
	d, err := k.Deployments.Apply(k.t.Context(), e)
	k.check(err)
	return d
}

// begin begins a rotation.
func (k *keyed) begin(id, key string) upgradestate.Update {
	k.t.Helper()
	d, err := k.Deployments.Get(k.t.Context())
	k.check(err)
	u, ok := rotationOf(d, key)
	if !ok {
		k.t.Fatal("there is nothing to rotate")
	}
	u.ID = id
	return *k.apply(upgradestate.BeginUpdate{Update: u}).Update
}

// finish has everybody be done with a rotation.
func (k *keyed) finish(id string) {
	k.t.Helper()
	k.apply(upgradestate.UpdateDone{ID: id})
	k.check(k.way.Sealer().Finish(k.t.Context(), id))
}

// keyedConnection is the connection to v1, as far as keys need it.
type keyedConnection struct {
	k *keyed
}

var _ Encrypted = keyedConnection{}

func (c keyedConnection) Encryption(context.Context) (*sealed.Namespace, error) { return c.k.way, nil }
func (c keyedConnection) Opened() bool                                          { return true }
func (c keyedConnection) Unreadable() error                                     { return nil }
func (c keyedConnection) KeysHere() []string                                    { return c.k.keys.Checked() }

// keep does once what the leader does every lookAtKeys, and returns the record.
func (k *keyed) keep() upgradestate.Deployment {
	k.t.Helper()
	d, err := k.Deployments.Get(k.t.Context())
	k.check(err)
	k.check(k.keepKey(k.t.Context(), d))
	d, err = k.Deployments.Get(k.t.Context())
	k.check(err)
	return d
}

func keysOf(t *testing.T, active string, names ...string) *sealed.Keys {
	t.Helper()
	var keys []sealed.Key
	for _, name := range names {
		keys = append(keys, sealed.Key{Name: name, Bytes: []byte(strings.Repeat(name, sealed.KeySize/len(name)))})
	}
	k, err := sealed.NewKeys(active, keys...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// asleep are the Notes of a process that sleeps once.
type asleep struct {
	*recordtest.Notes
	when  string
	slept func() // what happens meanwhile; nil: it was
}

const (
	beforeLook   = "before its look at the State"
	afterLook    = "after its look at the State"
	beforeChange = "before its change of the State"
)

func (a *asleep) sleep(now string) {
	if slept := a.slept; now == a.when && slept != nil {
		a.slept = nil
		slept()
	}
}

func (a *asleep) State(ctx context.Context) (sealed.State, error) {
	a.sleep(beforeLook)
	st, err := a.Notes.State(ctx)
	a.sleep(afterLook)
	return st, err
}

func (a *asleep) Change(ctx context.Context, change func(*sealed.State) (bool, error)) error {
	a.sleep(beforeChange)
	return a.Notes.Change(ctx, change)
}

// TestSleeperDoesNotTurnBack: a controller that sleeps on its way to change the key, over the end
// of its rotation and a whole further one, leaves the later key and its promise.
func TestSleeperDoesNotTurnBack(t *testing.T) {
	t.Parallel()
	for _, when := range []string{beforeLook, afterLook, beforeChange} {
		k := newKeyed(t, keysOf(t, "a001", "a001", "a002", "a003"))
		turn := func(u upgradestate.Update) {
			st, err := k.way.Sealer().State(t.Context())
			k.check(err)
			k.check(k.way.Sealer().Turn(t.Context(), st.Run, u.ID, u.Key, nil))
		}
		u := k.begin("r1", "a002")
		notes := &asleep{k.notes, when, func() {
			turn(u)
			k.finish("r1")
			turn(k.begin("r2", "a003"))
			k.finish("r2")
		}}
		sleeper := sealed.New("v1", func() *sealed.Keys { return k.keys }, notes).Namespace(k.store)
		if waits, err := (rotation{k.Keeper}).turn(t.Context(), u, sleeper); waits == "" && err == nil || notes.slept != nil {
			t.Errorf("asleep %s: it goes on, %q, %v", when, waits, err)
		}
		if st, _ := k.notes.State(t.Context()); st.Promised() != "a003" || st.Run != "r2" {
			t.Errorf("asleep %s: afterwards the State is %+v", when, st)
		}
	}
}

// TestWhatIsCancelledStaysCancelled, whichever controller leads, and for that key alone.
func TestWhatIsCancelledStaysCancelled(t *testing.T) {
	t.Parallel()
	k := newKeyed(t, keysOf(t, "a001", "a001", "a002"))
	rotates := func(to string) {
		t.Helper()
		key := ""
		if u := k.keep().Update; u != nil {
			key = u.Key
		}
		if key != to {
			t.Errorf("it rotates to %q, want %q", key, to)
		}
	}
	configure := func(active string) { k.keys = keysOf(t, active, "a001", "a002") }
	rotates("")
	configure("a002")
	rotates("a002")
	k.apply(upgradestate.CancelUpdate{})
	rotates("")
	configure("a001") // which is still the one
	rotates("")
	configure("a002") // a second time
	rotates("a002")
}

// TestRotationKeepsOutOfTheWay: nothing is rotated during an upgrade, nor right after a switch
// that may be undone.
func TestRotationKeepsOutOfTheWay(t *testing.T) {
	t.Parallel()
	k := newKeyed(t, keysOf(t, "a001", "a001", "a002"))
	k.keys = keysOf(t, "a002", "a001", "a002")
	d, err := k.Deployments.Get(t.Context())
	k.check(err)
	begins := func(d upgradestate.Deployment) bool {
		t.Helper()
		k.check(k.keepKey(t.Context(), d))
		defer k.apply(upgradestate.ConfigureKey{Version: "v1"})
		defer k.apply(upgradestate.CancelUpdate{})
		d, err := k.Deployments.Get(t.Context())
		k.check(err)
		return d.Update != nil
	}
	if !begins(d) {
		t.Error("it does not begin")
	}
	upgrading := d
	upgrading.Upgrade = &upgradestate.Upgrade{ID: "u1", State: upgradestate.InitialSyncing}
	if begins(upgrading) {
		t.Error("it begins during an upgrade")
	}
	d.Available = []upgradestate.Available{{TargetVersion: "v0"}}
	for _, tc := range []struct {
		ago      time.Duration
		snapshot bool
		want     bool
	}{{afterSwitch / 2, false, false}, {afterSwitch / 2, true, true}, {2 * afterSwitch, false, true}} {
		d.LastSwitch = &upgradestate.Switch{From: "v0", To: "v1", Snapshot: tc.snapshot, At: time.Now().Add(-tc.ago).UTC().Format(time.RFC3339Nano)}
		if got := begins(d); got != tc.want {
			t.Errorf("%s after a switch (without sync: %t) it begins: %t", tc.ago, tc.snapshot, got)
		}
	}
}

// gone is a database whose connections were closed.
type gone struct{ record.Namespace }

var errGone = errors.New("client is disconnected")

func (gone) Scan(context.Context, record.ScanRequest) (record.Page, error) {
	return record.Page{}, errGone
}

func (gone) Read(context.Context, record.ReadRequest) (record.Snapshot, error) {
	return record.Snapshot{}, errGone
}

func (gone) Swap(context.Context, record.Token, []record.Swap) ([]record.Result, error) {
	return nil, errGone
}

func (gone) Position(context.Context) (record.Position, error) { return record.Position{}, errGone }

func (gone) Split(context.Context, record.Token, int) ([]record.Range, error) { return nil, errGone }

func (gone) Size(context.Context, record.Token) (record.Size, error) { return record.Size{}, errGone }

// TestRotationOutlastsLogin: what a rotation reads and writes, and which key it goes by, are of
// the login of now.
func TestRotationOutlastsLogin(t *testing.T) {
	t.Parallel()
	k := newKeyed(t, keysOf(t, "a001", "a001"))
	key := record.StringKey("x")
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: "x"}})
	k.check(err)
	d, err := k.Deployments.Get(t.Context())
	k.check(err)
	ns, _ := d.Namespace("v1")
	tok := record.Token{Kind: "things", Name: ns.Kinds[0].Physical, ID: ns.Kinds[0].ID}
	k.check(k.way.Sealer().Client(k.store).Write(t.Context(), record.Tokens{"things": tok}, []record.Mutation{{Kind: "things", Key: key, Doc: doc}}))
	k.login(gone{k.store})
	u := k.begin("r1", "a001")
	k.check(k.way.Sealer().Turn(t.Context(), "", u.ID, u.Key, nil))
	task, stored, _, err := (rotation{k.Keeper}).Begin(t.Context(), u, true)
	k.check(err)
	all := func(want error) {
		t.Helper()
		for what, call := range map[string]func() error{
			"scan": func() error { _, err := stored.Scan(t.Context(), record.ScanRequest{Token: tok}); return err },
			"read": func() error {
				_, err := stored.Read(t.Context(), record.ReadRequest{Tokens: record.Tokens{"things": tok}, Select: []record.Selector{{Kind: "things", Key: key}}})
				return err
			},
			"swap":     func() error { _, err := stored.Swap(t.Context(), tok, nil); return err },
			"position": func() error { _, err := stored.Position(t.Context()); return err },
			"split":    func() error { _, err := stored.Split(t.Context(), tok, 2); return err },
			"size":     func() error { _, err := stored.Size(t.Context(), tok); return err },
		} {
			if err := call(); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
	}
	all(errGone)
	k.login(k.store)
	all(nil)
	page, err := stored.Scan(t.Context(), record.ScanRequest{Token: tok})
	if err != nil || len(page.Records) != 1 || sealed.Under(page.Records[0].Doc) != "a001" {
		t.Fatalf("by the other login: %+v, %v", page, err)
	}
	k.keys = keysOf(t, "a002", "a002")
	if _, err := task.Prepare(t.Context(), page.Records, nil); !errors.Is(err, sealed.ErrKey) {
		t.Errorf("a key that this process lacks is no failure of each record: %v", err)
	}
	k.keys = keysOf(t, "a001", "a001")
	change, err := task.Prepare(t.Context(), page.Records, nil)
	k.check(err)
	if again, err := change(page.Records[0]); again != nil || err != nil {
		t.Errorf("it is under the key: %v, %v", again, err)
	}
}

// TestRotationWaitsForKeys of all servers and controllers: those that have none, or another one of
// its name, could not read what others write.
func TestRotationWaitsForKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed(t, keysOf(t, "a001", "a001", "a002"))
		other, err := sealed.NewKeys("a002", sealed.Key{Name: "a002", Bytes: bytes.Repeat([]byte("x"), sealed.KeySize)})
		k.check(err)
		u := k.begin("r1", "a002")
		lack := func(want string) {
			t.Helper()
			waits, err := (rotation{k.Keeper}).lacking(t.Context(), u, k.keys)
			if err != nil || want == "" && waits != "" || !strings.Contains(waits, want) {
				t.Errorf("it waits for %q, %v, want %q", waits, err, want)
			}
		}
		lack("")
		server := upgradestate.ServerState{ID: "s1", Keys: map[string][]string{"v1": other.Checked()}}
		lease, err := k.coord.Grant(t.Context(), time.Hour)
		k.check(err)
		defer lease.Close(t.Context()) //nolint:errcheck // of a test
		register := func() { k.check(k.Deployments.Register(t.Context(), lease, server)) }
		register()
		lack("(server s1)")
		server.Keys["v1"] = k.keys.Checked()
		register()
		lack("")
		_, err = k.coord.Commit(t.Context(), nil, []coord.Op{{Key: k.Deployments.Root() + "/controllers/c1", Value: []byte("c1")}})
		k.check(err)
		lack("(controller c1)")
		k.ID = "c1"
		announced := func(keys *sealed.Keys, then func()) {
			t.Helper()
			mine, done := k.keys, make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			k.keys = keys
			go func() { done <- k.Announce(ctx) }()
			synctest.Wait()
			then()
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			k.keys = mine
		}
		key := k.keys
		announced(other, func() {
			if waits, err := (rotation{k.Keeper}).lacking(t.Context(), u, key); err != nil || !strings.Contains(waits, "(controller c1)") {
				t.Errorf("with another key of the name: %q, %v", waits, err)
			}
		})
		announced(key, func() { lack("") })
		if keys, err := k.Deployments.ControllerKeys(t.Context()); len(keys) > 0 || err != nil {
			t.Errorf("after its end its keys are still there: %v, %v", keys, err)
		}
	})
}
