// Package formernames finds the applications that still use the names of the version that the latest
// switch left.
//
// It is not for users and may change with any version.
package formernames

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/reconcile"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// After a switch, an application that was not updated still uses the old names. The database
// refuses its writes, and perhaps no person notices. Every five seconds the leader reads how often
// each name was used, with one cheap command for each. More than a hundred names take turns. Only if that count grew, it samples for a
// moment which clients use the name. It publishes the result as long as it leads.
//
// Under a validator fence the old name still belongs to the collection. The controllers use it too,
// and the server does not count refused writes separately. There the leader samples clients at each
// look. It sees only clients that run a command at that moment.

// Database is a version's database that reports how names of collections are used.
type Database interface {
	NameCount(ctx context.Context, name string) (record.NameCount, error)
	NameUsers(ctx context.Context, names []string) ([]record.NameUser, error)
}

const (
	lookNamesEvery = 5 * time.Second
	mostNames      = 100                       // names whose counts one look reads; the next look reads others
	mostNameUsers  = 20                        // shown users of one name
	mostUsersShown = mostNames * mostNameUsers // of all names together, so that the report fits into etcd
	nameSamples    = 20                        // samples while a name is in use
	nameSampleGap  = 25 * time.Millisecond
)

// Deployments is the record, and the place where controllers publish next to it.
type Deployments interface {
	Known(ctx context.Context) (upgradestate.Deployment, error)
	PublishNames(ctx context.Context, f *deployment.FormerNames, lease coord.LeaseID) error
}

// Watch watches the use of the former names.
type Watch struct {
	Deployments Deployments
	Databases   func(version string) any // a Database, unless it does not report the use of names
	Lease       func() coord.LeaseID     // of this controller; 0: none
	Log         *zap.Logger
}

// watcher holds the observations of one leader since a switch.
type watcher struct {
	Watch
	id     string // of the switch
	counts map[string]record.NameCount
	uses   map[string]*deployment.NameUse
	next   int // place in the counted names where the next look begins
	said   *deployment.FormerNames
}

// Run watches until ctx ends. Only the leader runs it.
func (n Watch) Run(ctx context.Context) error {
	look := time.NewTicker(lookNamesEvery)
	defer look.Stop()
	w := &watcher{Watch: n}
	var failing reconcile.Complaint
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
		switch err := w.look(ctx); {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			failing.Over()
		case failing.News(err):
			n.Log.Warn("cannot find out who uses the former names", zap.Error(err))
		}
	}
}

// leftNames returns the names of the version that the latest switch left. counted are those where a
// view refuses writes, sampled those where a validator does.
func leftNames(d upgradestate.Deployment) (version string, counted, sampled []string) {
	last := d.LastSwitch
	if last == nil || last.To != d.CurrentVersion || d.Upgrade != nil || upgradestate.Retired(d, last.From) {
		return "", nil, nil
	}
	ns, _ := d.Namespace(last.From)
	for _, k := range ns.Kinds {
		if !k.Fixed || k.Fenced == "" || k.Pending != nil || upgradestate.Namesake(d, ns, k) {
			continue
		}
		switch k.Fence {
		case string(record.FenceView):
			counted = append(counted, k.Kind)
		case string(record.FenceValidator):
			sampled = append(sampled, k.Kind)
		}
	}
	return last.From, counted, sampled
}

func (w *watcher) look(ctx context.Context) error {
	d, err := w.Deployments.Known(ctx)
	if err != nil {
		return err
	}
	version, counted, sampled := leftNames(d)
	// Nothing to watch: remove an earlier report.
	if len(counted)+len(sampled) == 0 {
		w.id, w.counts, w.uses = "", nil, nil
		return w.publish(ctx, nil)
	}
	// Counts of an earlier switch do not belong into this report.
	if w.id != d.LastSwitch.ID {
		w.id, w.counts, w.uses, w.next = d.LastSwitch.ID, map[string]record.NameCount{}, map[string]*deployment.NameUse{}, 0
	}
	shown := &deployment.FormerNames{ID: w.id}
	// Earlier results stay visible when a look fails, together with the reason.
	if watch, ok := w.Databases(version).(Database); !ok {
		shown.Unknown = "the database does not report it"
	} else if err = w.count(ctx, watch, version, w.turn(counted), sampled); err != nil {
		shown.Unknown = err.Error()
	}
	users := max(1, mostUsersShown/max(1, len(w.uses)))
	for _, name := range slices.Concat(counted, sampled) {
		if u := w.uses[name]; u != nil {
			use := *u
			use.Users = slices.Clone(u.Users[:min(users, len(u.Users))])
			shown.Uses = append(shown.Uses, use)
		}
	}
	return errors.Join(err, w.publish(ctx, shown))
}

// turn returns the names whose counts this look reads. Each count is a command of its own, so that
// many names take turns. Counts only grow, so a later look finds the same uses.
func (w *watcher) turn(names []string) []string {
	if len(names) <= mostNames {
		return names
	}
	var some []string
	for i := range mostNames {
		some = append(some, names[(w.next+i)%len(names)])
	}
	w.next = (w.next + mostNames) % len(names)
	return some
}

// count updates which counted names were used since the last look and by which clients, and which
// clients use a sampled name now.
func (w *watcher) count(ctx context.Context, watch Database, version string, counted, sampled []string) error {
	now := time.Now().UTC().Format(time.RFC3339)
	used := slices.Clone(sampled)
	for _, name := range counted {
		is, err := watch.NameCount(ctx, name)
		if err != nil {
			return err
		}
		was, known := w.counts[name]
		w.counts[name] = is
		reads, writes := is.Reads-was.Reads-1, is.Writes-was.Writes // our own look counts as a read
		if !known || reads < 0 || writes < 0 {
			continue // the first look, or the server restarted its counters
		}
		if reads+writes == 0 {
			continue
		}
		u := w.uses[name]
		if u == nil {
			u = &deployment.NameUse{Version: version, Kind: name}
			w.uses[name] = u
		}
		u.Reads, u.Writes, u.Last = u.Reads+reads, u.Writes+writes, now
		used = append(used, name)
	}
	if len(used) == 0 {
		return nil
	}
	// A command is visible only while it runs, so one sample would miss most clients.
	for range nameSamples {
		users, err := watch.NameUsers(ctx, used)
		if err != nil {
			return err
		}
		for _, u := range users {
			if w.uses[u.Name] == nil && slices.Contains(sampled, u.Name) {
				w.uses[u.Name] = &deployment.NameUse{Version: version, Kind: u.Name, Last: now}
			}
			w.met(u, now)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(nameSampleGap):
		}
	}
	return nil
}

func (w *watcher) met(u record.NameUser, now string) {
	use := w.uses[u.Name]
	if use == nil {
		return
	}
	use.Last = now
	client := deployment.NameUser{Application: u.Application, Driver: u.Driver, Address: u.Address, Last: now}
	for i, known := range use.Users {
		// Compare all fields except the time.
		if client.Last = known.Last; client == known {
			use.Users[i].Last = now
			return
		}
	}
	if client.Last = now; len(use.Users) < mostNameUsers {
		use.Users = append(use.Users, client)
	}
}

func (w *watcher) publish(ctx context.Context, f *deployment.FormerNames) error {
	lease := w.Lease()
	if lease == 0 || reflect.DeepEqual(f, w.said) {
		return nil // without a lease, the entry would outlive this controller
	}
	if err := w.Deployments.PublishNames(ctx, f, lease); err != nil {
		return err
	}
	w.said = f
	return nil
}
