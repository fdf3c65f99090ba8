package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/gen/secrets/v1/secretsv1connect"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
	"dbcontroller.dev/gen/secrets/v2/secretsv2connect"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/upgradestate"
)

// searchLag is the lag that the configuration of these tests states.
const searchLag = 5 * time.Second

// searchSize is the number of secrets and of writes each second. DBCONTROLLER_SEARCH=100000,200
// makes them larger.
func searchSize(t *testing.T) (records, rate int) {
	text := os.Getenv("DBCONTROLLER_SEARCH")
	if text == "" {
		return 300, 30
	}
	before, after, _ := strings.Cut(text, ",")
	records, err := strconv.Atoi(before)
	if err != nil {
		t.Fatal(err)
	}
	if rate, err = strconv.Atoi(after); err != nil {
		t.Fatal(err)
	}
	return records, rate
}

// searchWorld has secrets of which each has a word of its own, which changes with each write.
type searchWorld struct {
	t       *testing.T
	http    *http.Client
	v1      []secretsv1connect.SecretServiceClient // of servers that stay
	v2      []secretsv2connect.SecretServiceClient
	records int

	words   atomic.Int64
	mu      sync.Mutex
	known   map[string]written // by id
	writing map[string]bool
	checks  atomic.Int64 // searches that had to find a secret
	writes  atomic.Int64
	refused atomic.Int64 // searches of servers whose index was too far behind
	slowest atomic.Int64 // the longest search, in nanoseconds
}

// clientMade is the number of secrets that clients make in the beginning. Others are put into the
// database as copies of one that a client made.
const clientMade = 300

// fill puts n secrets into the database.
func (w *searchWorld) fill(ctx context.Context, s *system, n int) {
	w.t.Helper()
	if n <= 0 {
		return
	}
	if err := w.write(ctx, "s0", false); err != nil {
		w.t.Fatal(err)
	}
	d, err := s.record.Get(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	ns, _ := d.Namespace("v1")
	kind, _ := ns.Kind("secrets")
	col := s.db["v1"].Collection(kind.Physical)
	var model bson.M
	if err := col.FindOne(ctx, bson.M{"_id": "projects/p/secrets/s0"}).Decode(&model); err != nil {
		w.t.Fatal(err)
	}
	for from := 1; from < n; from += 1000 {
		var docs []any
		for i := from; i < min(n, from+1000); i++ {
			id, doc := fmt.Sprint("s", i), maps.Clone(model)
			last := written{word: w.word(), at: time.Now()}
			doc["_id"], doc["name"], doc["labels"] = "projects/p/secrets/"+id, "projects/p/secrets/"+id, bson.M{"word": last.word}
			docs, w.known[id] = append(docs, doc), last
		}
		if _, err := col.InsertMany(ctx, docs); err != nil {
			w.t.Fatal(err)
		}
	}
}

// written is the latest acknowledged write of a secret.
type written struct {
	word string // empty: deleted
	at   time.Time
}

func (w *searchWorld) word() string { return fmt.Sprint("word", w.words.Add(1)) }

// write creates, changes or deletes a secret.
func (w *searchWorld) write(ctx context.Context, id string, del bool) error {
	w.mu.Lock()
	before, busy := w.known[id], w.writing[id]
	if busy {
		w.mu.Unlock()
		return nil
	}
	w.writing[id] = true
	w.mu.Unlock()
	after := written{word: w.word()}
	var err error
	client, name := w.v1[rand.IntN(len(w.v1))], "projects/p/secrets/"+id
	secret := &secretsv1.Secret{Name: name, Owner: "payments/ada", Labels: map[string]string{"word": after.word}}
	switch {
	case before.word == "":
		_, err = client.CreateSecret(ctx, connect.NewRequest(&secretsv1.CreateSecretRequest{Parent: "projects/p", SecretId: id, Secret: secret}))
	case del:
		after.word = ""
		_, err = client.DeleteSecret(ctx, connect.NewRequest(&secretsv1.DeleteSecretRequest{Name: name}))
	default:
		_, err = client.UpdateSecret(ctx, connect.NewRequest(&secretsv1.UpdateSecretRequest{Secret: secret}))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.writing, id)
	if err != nil {
		return err
	}
	after.at = time.Now()
	w.known[id] = after
	w.writes.Add(1)
	return nil
}

// check searches for a secret whose latest write is older than the stated lag. It must be found.
func (w *searchWorld) check(ctx context.Context, id string) error {
	w.mu.Lock()
	want, writing := w.known[id], w.writing[id]
	w.mu.Unlock()
	if want.word == "" || writing || time.Since(want.at) <= searchLag {
		return nil
	}
	n, begun := rand.IntN(len(w.v1)), time.Now()
	var names []string
	var err error
	over, query := "v1", want.word
	if rand.IntN(2) == 0 {
		query = "labels:" + want.word
	}
	if rand.IntN(3) > 0 {
		var res *connect.Response[secretsv1.SearchSecretsResponse]
		if res, err = w.v1[n].SearchSecrets(ctx, connect.NewRequest(&secretsv1.SearchSecretsRequest{Query: query})); err == nil {
			for _, s := range res.Msg.GetSecrets() {
				names = append(names, s.GetName())
			}
		}
	} else {
		// v2 is not acknowledged while v1 is active: the sync may be behind.
		over = "v2"
		var res *connect.Response[secretsv2.SearchSecretsResponse]
		res, err = w.v2[n].SearchSecrets(ctx, connect.NewRequest(&secretsv2.SearchSecretsRequest{Query: query, Parent: "projects/p/regions/us-west2"}))
		if err != nil || res.Header().Get("Dbcontroller-Version") != "v2" {
			return nil //nolint:nilerr // there may be no v2 yet
		}
		for _, s := range res.Msg.GetSecrets() {
			names = append(names, strings.Replace(s.GetName(), "regions/us-west2/", "", 1))
		}
	}
	w.mu.Lock()
	same := w.known[id] == want && !w.writing[id]
	w.mu.Unlock()
	if !same {
		return nil // it was written meanwhile
	}
	// A search that waited for its index in vain is refused. It misses nothing.
	if connect.CodeOf(err) == connect.CodeUnavailable {
		w.refused.Add(1)
		return nil
	}
	if err != nil {
		return fmt.Errorf("search through %s for %s: %w", over, id, err)
	}
	w.checks.Add(1)
	for took := int64(time.Since(begun)); ; {
		if longest := w.slowest.Load(); took <= longest || w.slowest.CompareAndSwap(longest, took) {
			break
		}
	}
	if !slices.Equal(names, []string{"projects/p/secrets/" + id}) {
		return fmt.Errorf("search through %s for %s, written %s ago, found %v; a read: %s", over, query, time.Since(want.at), names, w.read(ctx, id))
	}
	return nil
}

// read returns what the database has of a secret, for a message.
func (w *searchWorld) read(ctx context.Context, id string) string {
	res, err := w.v1[0].GetSecret(ctx, connect.NewRequest(&secretsv1.GetSecretRequest{Name: "projects/p/secrets/" + id}))
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("word %q in %s", res.Msg.GetSecret().GetLabels()["word"], res.Header().Get("Dbcontroller-Version"))
}

// stored fails the test unless the database has exactly the acknowledged writes, once all have ended.
// What a search misses then is missing in an index.
func (w *searchWorld) stored(ctx context.Context) {
	w.t.Helper()
	have := map[string]string{}
	for token := ""; ; {
		res, err := w.v1[0].ListSecrets(ctx, connect.NewRequest(&secretsv1.ListSecretsRequest{Parent: "projects/p", PageSize: 1000, PageToken: token}))
		if err != nil {
			w.t.Fatal(err)
		}
		for _, secret := range res.Msg.GetSecrets() {
			if id := strings.TrimPrefix(secret.GetName(), "projects/p/secrets/"); secret.GetOwner() != importOwner {
				have[id] = secret.GetLabels()["word"]
			}
		}
		if token = res.Msg.GetNextPageToken(); token == "" {
			break
		}
	}
	for id, last := range w.known {
		if have[id] != last.word {
			w.t.Errorf("%s has %q in the database, and its latest acknowledged write at %s has %q (empty: none)", id, have[id], last.at, last.word)
		}
		delete(have, id)
	}
	for id, word := range have {
		w.t.Errorf("%s has %q in the database, and nobody has created it", id, word)
	}
	if w.t.Failed() {
		w.t.FailNow()
	}
}

// verified fails the test unless the index of v1 of a server has exactly what the database has.
func (w *searchWorld) verified(ctx context.Context, server *child) {
	w.t.Helper()
	_, operator := server.addresses()
	var out struct {
		Different int64
		First     []string
	}
	eventually(ctx, w.t, "the index is compared", func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+operator+"/search/verify?version=v1", nil)
		if err != nil {
			return err
		}
		res, err := w.http.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s, %v", res.Status, text, err)
		}
		return json.Unmarshal(text, &out)
	})
	if out.Different != 0 {
		w.t.Fatalf("the index of %s differs from the database by %d secrets, such as %v", server.name, out.Different, out.First)
	}
}

// importOwner owns the secrets of imports.
const importOwner = "imports/ada"

// imports keeps one stream of a client open until working ends, over the switch and back. Each of its
// messages is done once.
func (w *searchWorld) imports(ctx, working context.Context) error {
	stream, sent := w.v1[0].ImportSecrets(ctx), int64(0)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for working.Err() == nil {
		if err := stream.Send(&secretsv1.ImportSecretsRequest{Parent: "projects/p", SecretId: fmt.Sprint("i", sent), Secret: &secretsv1.Secret{Owner: importOwner}}); err != nil {
			break // the answer has the reason
		}
		sent++
		select {
		case <-tick.C:
		case <-working.Done():
		}
	}
	res, err := stream.CloseAndReceive()
	if err != nil {
		return fmt.Errorf("import after %d messages: %w", sent, err)
	}
	if res.Msg.GetCreated() != sent || res.Msg.GetExisting() != 0 {
		return fmt.Errorf("import of %d messages: %v", sent, res.Msg)
	}
	for from := int64(0); from < sent; from += 1000 {
		var names []string
		for i := from; i < min(sent, from+1000); i++ {
			names = append(names, fmt.Sprint("projects/p/secrets/i", i))
		}
		if _, err := w.v1[0].BatchGetSecrets(ctx, connect.NewRequest(&secretsv1.BatchGetSecretsRequest{Names: names})); err != nil {
			return fmt.Errorf("after an import: %w", err)
		}
	}
	w.t.Logf("%d messages of one stream were done", sent)
	return nil
}

// TestSearchOverFlips searches through an upgrade and a rollback, under writes, while one of the
// servers is killed in each step. A search never misses a secret that was acknowledged longer than
// the stated lag ago. Meanwhile a client of v1 imports secrets by one stream.
func TestSearchOverFlips(t *testing.T) {
	t.Parallel()
	records, rate := searchSize(t)
	searchOverFlips(t, settings{}, records, rate)
}

func searchOverFlips(t *testing.T, set settings, records, rate int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	set.further = fmt.Sprintf("search: {folder: \"$(SEARCH_FOLDER)\", lag: %s, wait: 10m}\n", searchLag)
	s := newSystem(ctx, t, set)
	s.env = append(s.env, "SEARCH_FOLDER=controllers have none")
	newTraffic(ctx, s, 10) // its documents only
	controller := s.controller("first", breakPoint{}).ready(ctx)
	s.awaitShards(ctx, "first")
	w := &searchWorld{t: t, http: s.http, records: records, known: map[string]written{}, writing: map[string]bool{}}
	server := func(id string) *child {
		s.env = append(s.env, "SEARCH_FOLDER="+filepath.Join(s.dir, id)) // the last one counts
		return s.server(id, 0).ready(ctx)
	}
	for _, id := range []string{"stays", "stays too"} {
		at, _ := server(id).addresses()
		w.v1 = append(w.v1, secretsv1connect.NewSecretServiceClient(s.http, "http://"+at))
		w.v2 = append(w.v2, secretsv2connect.NewSecretServiceClient(s.http, "http://"+at))
	}
	victim := server("victim")
	kill := func() {
		victim.kill()
		victim = server("victim")
	}

	begun := time.Now()
	w.fill(ctx, s, records-clientMade)
	g, filling := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for i := range clientMade {
		g.Go(func() error { return w.write(filling, fmt.Sprint("s", records-1-i), false) })
		if i == clientMade/2 {
			kill() // in the middle of its first scan, or of the changes
		}
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d secrets were created in %s", records, time.Since(begun))

	working, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() {
		if err := w.imports(ctx, working); err != nil {
			t.Error(err)
		}
	})
	// A slow machine takes more than a moment for a write, and has to reach the rate all the same.
	writers := max(4, rate/5)
	for i := range writers {
		rng := rand.New(rand.NewPCG(3, uint64(i)))
		wg.Go(func() {
			tick := time.NewTicker(time.Duration(writers) * time.Second / time.Duration(rate))
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					// A write that was begun is finished: nobody knows the outcome of one that is cancelled.
					if err := w.write(ctx, fmt.Sprint("s", rng.IntN(records)), rng.IntN(5) == 0); err != nil {
						t.Errorf("write: %v", err)
						return
					}
				case <-working.Done():
					return
				}
			}
		})
	}
	for range 4 {
		wg.Go(func() {
			for working.Err() == nil {
				if err := w.check(working, fmt.Sprint("s", rand.IntN(records))); err != nil && working.Err() == nil {
					t.Error(err)
					return
				}
				select {
				case <-time.After(20 * time.Millisecond):
				case <-working.Done():
				}
			}
		})
	}
	// more waits until so many secrets were searched for, and fails if a search failed.
	more := func(n int64) {
		t.Helper()
		until := w.checks.Load() + n
		eventually(ctx, t, "secrets are searched for", func() error {
			if t.Failed() {
				return nil
			}
			if now := w.checks.Load(); now < until {
				return fmt.Errorf("%d of %d", now, until)
			}
			return nil
		})
		if t.Failed() {
			t.FailNow()
		}
	}
	began := time.Now()
	more(50)
	for _, to := range []string{"v2", "v1"} {
		begun := time.Now()
		s.beginTo(ctx, to)
		kill()
		s.await(ctx, "the switch to "+to, func(d upgradestate.Deployment) bool {
			return d.CurrentVersion == to || d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching
		})
		kill()
		s.await(ctx, "the flip to "+to, flipped(to))
		t.Logf("%s is active after %s", to, time.Since(begun).Round(time.Millisecond))
		more(50)
		kill()
		more(50)
	}
	stop()
	wg.Wait()
	t.Logf("%d writes in %s, %d searches, the longest took %s, %d refused", w.writes.Load(), time.Since(began).Round(time.Second), w.checks.Load(), time.Duration(w.slowest.Load()).Round(time.Millisecond), w.refused.Load())

	// In the end everything is found, also by the server that was killed all the time.
	w.stored(ctx)
	w.verified(ctx, victim)
	last, _ := victim.addresses()
	w.v1 = []secretsv1connect.SecretServiceClient{secretsv1connect.NewSecretServiceClient(s.http, "http://"+last)}
	present := map[string]bool{}
	for id, last := range w.known {
		if last.word != "" {
			present["projects/p/secrets/"+id] = true
		}
	}
	eventually(ctx, t, "the killed server finds everything", func() error {
		found := map[string]bool{}
		for token := ""; ; {
			res, err := w.v1[0].SearchSecrets(ctx, connect.NewRequest(&secretsv1.SearchSecretsRequest{Query: "payments/ada", OrderBy: "name", PageSize: 1000, PageToken: token}))
			if err != nil {
				return err
			}
			for _, s := range res.Msg.GetSecrets() {
				found[s.GetName()] = true
			}
			if token = res.Msg.GetNextPageToken(); token == "" {
				break
			}
		}
		for name := range present {
			if !found[name] {
				return fmt.Errorf("%s is missing; %d of %d were found; a read: %s", name, len(found), len(present), w.read(ctx, strings.TrimPrefix(name, "projects/p/secrets/")))
			}
		}
		if len(found) != len(present) {
			t.Errorf("%d were found, %d are there", len(found), len(present))
		}
		return nil
	})

	// An index goes with its version.
	d, err := s.record.Get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	confirm, _ := api.Confirmation(d, "v2")
	at, _ := controller.addresses()
	r := execute(ctx, t, []string{"DBCONTROLLER_SERVER=" + at}, "complete", "--version", "v2", "--ignore-usage", "--keep-for", "0s", "--confirm", confirm)
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	eventually(ctx, t, "the indexes of v2 are deleted", func() error {
		left, err := filepath.Glob(filepath.Join(s.dir, "*", "v2", "index_meta.json"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("there are still %v", left)
		}
		return err
	})
	if left, err := filepath.Glob(filepath.Join(s.dir, "*", "v1", "index_meta.json")); err != nil || len(left) != 3 {
		t.Errorf("of v1 there are %v, %v", left, err)
	}
}

// TestSearchInEtcd: an index follows records in etcd like those in MongoDB.
func TestSearchInEtcd(t *testing.T) {
	t.Parallel()
	searchOverFlips(t, settings{kinds: "[]", records: map[string]string{"v2": inEtcd(sharedEtcd.endpoints(t)[0], "")}}, 100, 20)
}
