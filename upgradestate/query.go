package upgradestate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The fence classes, as in record.FenceClass. This package does not import record, so it has its
// own constants for the classes that it distinguishes.
const (
	classUUID       = "uuid"
	classView       = "view"
	classRole       = "role"
	classWriteBlock = "writeBlock"
	classValidator  = "validator"
)

// New returns the record of a new deployment.
func New(name, version string, ringSize int) Deployment {
	return Deployment{
		Format: Format, Name: name, CurrentVersion: version, Epoch: 1, RingSize: ringSize,
		Namespaces: []Namespace{},
	}
}

// Clone returns a deep copy of d.
func Clone(d Deployment) Deployment {
	// Every slice, map and pointer is copied, since callers keep the old record.
	d.Namespaces = slices.Clone(d.Namespaces)
	for i := range d.Namespaces {
		d.Namespaces[i] = d.Namespaces[i].clone()
	}
	d.Available = slices.Clone(d.Available)
	if d.Upgrade != nil {
		u := *d.Upgrade
		u.ReadyShards = slices.Clone(u.ReadyShards)
		d.Upgrade = &u
	}
	if d.LastSwitch != nil {
		s := d.LastSwitch.clone()
		d.LastSwitch = &s
	}
	if d.Update != nil {
		u := *d.Update
		u.Rest = slices.Clone(u.Rest)
		u.Done = slices.Clone(u.Done)
		d.Update = &u
	}
	d.Following = slices.Clone(d.Following)
	if d.Retire != nil {
		r := *d.Retire
		d.Retire = &r
	}
	d.Retired = slices.Clone(d.Retired)
	d.Kept = slices.Clone(d.Kept)
	for i := range d.Kept {
		d.Kept[i].Namespace = d.Kept[i].Namespace.clone()
	}
	d.Breaches = slices.Clone(d.Breaches)
	d.Different = d.Different.clone()
	d.Anew = d.Anew.clone()
	d.Restored = slices.Clone(d.Restored)
	d.History = slices.Clone(d.History)
	for i := range d.History {
		d.History[i].Phases = slices.Clone(d.History[i].Phases)
	}
	return d
}

func (ns Namespace) clone() Namespace {
	ns.Kinds = slices.Clone(ns.Kinds)
	for j := range ns.Kinds {
		if p := ns.Kinds[j].Pending; p != nil {
			q := *p
			ns.Kinds[j].Pending = &q
		}
		ns.Kinds[j].Expiry = maps.Clone(ns.Kinds[j].Expiry)
		ns.Kinds[j].Carried = slices.Clone(ns.Kinds[j].Carried)
	}
	return ns
}

func (s Switch) clone() Switch {
	if s.Millis != nil {
		m := make(map[string]int64, len(s.Millis))
		for k, v := range s.Millis {
			m[k] = v
		}
		s.Millis = m
	}
	return s
}

// Namespace returns the namespace of a version. Its kinds are shared with d and must not be
// modified.
func (d Deployment) Namespace(version string) (Namespace, bool) {
	if ns := d.namespaceOf(version); ns != nil {
		return *ns, true
	}
	return Namespace{}, false
}

// namespaceOf returns a version's namespace, to be modified in place, or nil. Appending to
// d.Namespaces makes it stale.
func (d *Deployment) namespaceOf(version string) *Namespace {
	i := slices.IndexFunc(d.Namespaces, func(ns Namespace) bool { return ns.Version == version })
	if i < 0 {
		return nil
	}
	return &d.Namespaces[i]
}

// Kind returns a kind of the namespace.
func (ns Namespace) Kind(name string) (Kind, bool) {
	for _, k := range ns.Kinds {
		if k.Kind == name {
			return k, true
		}
	}
	return Kind{}, false
}

func (ns Namespace) pending() bool {
	return slices.ContainsFunc(ns.Kinds, func(k Kind) bool { return k.Pending != nil })
}

// PendingShards returns the shards whose report the running upgrade waits for, and an empty list
// without an upgrade.
func PendingShards(d Deployment) []int {
	shards := []int{}
	if d.Upgrade == nil {
		return shards
	}
	// Only ready shards are stored, so that a new attempt resets them with one assignment.
	for s := range d.RingSize {
		if !slices.Contains(d.Upgrade.ReadyShards, s) {
			shards = append(shards, s)
		}
	}
	return shards
}

// AllReady reports whether an upgrade runs and every shard has reported.
func AllReady(d Deployment) bool {
	return d.Upgrade != nil && len(PendingShards(d)) == 0
}

// ReadyToSwitch reports whether the record allows StartSwitch. The driver also checks lag,
// verification, time windows and parked groups.
func ReadyToSwitch(d Deployment) bool {
	return d.Upgrade != nil && d.Upgrade.State == InitialSyncing && AllReady(d) && SwitchBlocker(d) == ""
}

// FenceNames returns the canonical form "kind=fence,kind=fence" of the fences in force on the
// source. A report in StepDrain must contain it. It is "" outside of SWITCHING.
func FenceNames(d Deployment) string {
	if !switching(d) {
		return ""
	}
	ns, _ := d.Namespace(d.CurrentVersion)
	var pairs []string
	for _, k := range ns.Kinds {
		pairs = append(pairs, k.Kind+"="+k.Fenced)
	}
	// One order for all, whatever order the kinds joined in.
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

func switching(d Deployment) bool {
	return d.Upgrade != nil && d.Upgrade.State == Switching
}

// moves reports whether an operation gives the kind another name. A hidden kind always moves: no
// client knows its name, so no class has to keep it.
func (k Kind) moves(r PendingReason) bool {
	switch r {
	case PendingLast:
		return true
	// A kind that kept its name has only its mark removed.
	case PendingOpen:
		return k.Hidden
	case PendingFence, PendingSeal:
		return k.Hidden || k.renames()
	default:
		return false
	}
}

// renames reports whether the class of the kind fences by renaming.
func (k Kind) renames() bool {
	switch k.Fence {
	case classUUID, classView, classRole:
		return true
	case classWriteBlock, classValidator:
		return false
	default:
		return false
	}
}

// unfenceable reports whether the fence of the kind is still where it was set, so that an unfence
// removes it. A hidden kind that has moved since is opened by a plain rename.
func (k Kind) unfenceable() bool {
	return k.Fenced != "" && (!k.Hidden || k.Physical == k.Fenced)
}

// operationClass returns the class by which an operation is executed.
func (k Kind) operationClass(r PendingReason) string {
	switch r {
	case PendingLast, PendingOpen:
		return classUUID
	case PendingFence, PendingSeal:
		// A hidden kind has no clients to refuse, so a plain rename is enough.
		if k.Hidden {
			return classUUID
		}
		return k.Fence
	default:
		return k.Fence
	}
}

// ends returns the fence that an operation ends, or "" (see confirm).
func (k Kind) ends(r PendingReason) string {
	if r == PendingOpen || r == PendingSeal && !k.Hidden && k.Fence != classUUID {
		return k.Fenced
	}
	return ""
}

// Mark returns the fence behind which appliers write the kind, if the kind keeps its name under it.
// The token of such a kind is the same before and after a seal, so appliers send the fence too. It
// is "" for other kinds, and for managed ones, whose guards are in the records.
func (k Kind) Mark() string {
	if !k.Fixed || k.Hidden || k.renames() {
		return ""
	}
	return k.Fenced
}

// physicalName returns the same format as record.PhysicalName.
func physicalName(kind string, seq uint64) string { return fmt.Sprintf("%s.n%d", kind, seq) }

// seqOf is the inverse of physicalName for a kind. It is false for other names, such as a
// fixed-name kind's own.
func seqOf(kind, name string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, kind+".n")
	if !ok || digits == "" || len(digits) > 18 { // longer numbers could overflow
		return 0, false
	}
	var seq uint64
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return 0, false
		}
		seq = seq*10 + uint64(c-'0')
	}
	return seq, true
}

// Namesake reports whether another version has a fixed-name kind with k's name in the database of
// ns. A collection with that name then belongs to the other version, and proves nothing about the
// fence of k.
func Namesake(d Deployment, ns Namespace, k Kind) bool {
	for _, other := range d.Namespaces {
		// Another database cannot have a collection of the same name in the way.
		if other.Version == ns.Version || other.Location != ns.Location {
			continue
		}
		if same, ok := other.Kind(k.Kind); ok && same.Fixed {
			return true
		}
	}
	return false
}
