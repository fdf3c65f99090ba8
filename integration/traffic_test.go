package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"dbcontroller.dev/upgradestate"
)

// traffic drives both paths of a system: the BBS API, and the plain driver on the
// application's collection.
type traffic struct {
	system    *system
	servers   []*child
	client    *bbsClient
	processes *ledger
	packages  *ledger
	bbs       []*bbsWriter
	apps      []*packageWriter
	alone     bool // there is no application
	stop      context.CancelFunc
	wg        sync.WaitGroup
	pause     sync.RWMutex // held by each operation; who locks it has the clients stand still
}

// Clients of each path, documents that each of the application's owns, and the least pause
// between two operations of one client. A client rests restPerWork times as long as its last
// operation took: on a machine that has little to give, clients that do not rest take all
// of it, and what they write is never followed.
const (
	bbsClients   = 4
	appClients   = 2
	ownDocuments = 50
	think        = 160 * time.Millisecond
	restPerWork  = 3
	longestRest  = time.Second // a client that was held up by an election goes on soon
)

// newTraffic fills the application's collection. The servers are given later, when they
// run.
func newTraffic(ctx context.Context, s *system, documents int) *traffic {
	s.t.Helper()
	tr := &traffic{system: s, processes: newLedger("process"), packages: newLedger("package")}
	s.fill(ctx, tr.packages, documents)
	return tr
}

// start drives until finish. Each client first creates some processes.
func (tr *traffic) start(ctx context.Context, servers ...*child) {
	tr.servers, tr.client = servers, newBBSClient(tr.system.http, servers...)
	ctx, tr.stop = context.WithCancel(ctx)
	tr.system.t.Cleanup(tr.finish)
	for i := range bbsClients {
		w := &bbsWriter{client: tr.client, ledger: tr.processes, rng: rand.New(rand.NewPCG(1, uint64(i))), number: i}
		tr.bbs = append(tr.bbs, w)
		tr.drive(ctx, func() {
			if len(w.live) < 10 && len(w.dead) == 0 {
				w.op++
				w.create(ctx)
			} else {
				w.step(ctx)
			}
		})
	}
	for i := range appClients {
		if tr.alone {
			break
		}
		w := &packageWriter{system: tr.system, ledger: tr.packages, rng: rand.New(rand.NewPCG(2, uint64(i)))}
		for j := range ownDocuments {
			w.live = append(w.live, packageKey(i*ownDocuments+j))
		}
		tr.apps = append(tr.apps, w)
		tr.drive(ctx, func() { w.step(ctx) })
	}
}

func (tr *traffic) drive(ctx context.Context, step func()) {
	tr.wg.Go(func() {
		rest := think
		for pauseFor(ctx, rest) == nil {
			since := time.Now()
			tr.pause.RLock()
			step()
			tr.pause.RUnlock()
			rest = min(max(think, restPerWork*time.Since(since)), longestRest)
		}
	})
}

// keep says whether the application deletes nothing from now on. Before a switch it does where
// only validators fence: they let deletes pass, and a client that does not ask where the data is
// would make them on the old version after the flip. Afterwards each client asks first.
func (tr *traffic) keep(keeps bool) {
	tr.pause.Lock() // what was under way has ended
	defer tr.pause.Unlock()
	for _, w := range tr.apps {
		w.keeps, w.at = keeps, nil
	}
}

func (tr *traffic) finish() {
	tr.stop()
	tr.wg.Wait()
}

// awaitWrites waits until both paths have written so often on a version.
func (tr *traffic) awaitWrites(ctx context.Context, version string, n int) {
	tr.system.t.Helper()
	tr.await(ctx, version, n, tr.processes)
	if !tr.alone {
		tr.await(ctx, version, n, tr.packages)
	}
}

func (tr *traffic) await(ctx context.Context, version string, n int, l *ledger) {
	tr.system.t.Helper()
	eventually(ctx, tr.system.t, l.Name+" writes on "+version, func() error {
		if l.count(version) < n {
			return errTooFew
		}
		return nil
	})
}

var errTooFew = errors.New("there are too few")

// settle stops the clients and checks, in every place that can be looked at, that nothing
// was lost, duplicated or resurrected.
func (tr *traffic) settle(ctx context.Context, d upgradestate.Deployment) {
	s := tr.system
	s.t.Helper()
	tr.finish()
	if d.CurrentVersion == "v1" {
		// v2's API answers from data that follows a moment later. The parts of a process follow one after
		// the other, and the API does not show those whose process is gone.
		eventually(ctx, s.t, "v2 has followed", func() error {
			_, passive, err := tr.client.list(ctx, 0)
			if err != nil {
				return err
			}
			return errors.Join(tr.processes.check("the v2 API", passive), tr.checkRaw(ctx, d))
		})
	}
	for i := range tr.servers {
		v1, v2, err := tr.client.list(ctx, i)
		if err != nil {
			s.t.Fatalf("list processes at %s: %v", tr.servers[i].name, err)
		}
		s.report(tr.processes.check("the v1 API of "+tr.servers[i].name, v1))
		s.report(tr.processes.check("the v2 API of "+tr.servers[i].name, v2))
	}
	s.report(tr.checkRaw(ctx, d))
	s.report(tr.processes.failures())
	if !tr.alone {
		tr.settlePackages(ctx, d.CurrentVersion)
	}
	if tr.processes.reads == 0 {
		s.t.Error("nothing was read")
	}
}

// checkRaw checks v2's processes as MongoDB holds them, where a test can read them there.
func (tr *traffic) checkRaw(ctx context.Context, d upgradestate.Deployment) error {
	s := tr.system
	if s.db["v2"] == nil || s.encrypted {
		return nil
	}
	raw, err := s.rawProcesses(ctx, d)
	if err != nil {
		return fmt.Errorf("read processes: %w", err)
	}
	return tr.processes.check("MongoDB", raw)
}

// settlePackages checks the application's documents, and how its calls ended.
func (tr *traffic) settlePackages(ctx context.Context, version string) {
	s := tr.system
	s.t.Helper()
	docs, err := s.rawPackages(ctx, version)
	if err != nil {
		s.t.Fatalf("read packages: %v", err)
	}
	s.report(tr.packages.check("MongoDB", docs))
	s.report(tr.packages.failures())
}

// report fails the test if something was found.
func (s *system) report(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Error(err)
	}
}
