package transform

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strings"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Registry holds the transformers of one service, by pairs of adjacent versions. Filling it is not
// safe for concurrent use. A Direction does not see additions made after its creation.
type Registry struct {
	service  string
	steps    []step                       // in the order of their first Add
	declared map[string][]record.KindSpec // by version; additional to the kinds of the steps
	local    map[string][]record.KindSpec // by version; see DeclareLocal
	tasks    []Task                       // data updates, which are part of no Direction
}

// step is a transformation from one version to the next.
type step struct {
	oldVersion, newVersion string
	specs                  []Spec
}

// ErrNoDirection is returned by Direction if no steps connect the versions.
var ErrNoDirection = errors.New("no transformation between the versions")

// NewRegistry returns an empty registry. The service's name is part of every Direction's hash.
func NewRegistry(service string) *Registry { return &Registry{service: service} }

// Service returns the name given to NewRegistry.
func (r *Registry) Service() string { return r.service }

// Versions returns every known version, older before newer within a step.
func (r *Registry) Versions() []string {
	var vs []string
	for _, s := range r.steps {
		for _, v := range []string{s.oldVersion, s.newVersion} {
			if !slices.Contains(vs, v) {
				vs = append(vs, v)
			}
		}
	}
	// Declared versions have no order among each other. Sort them, so that the result is stable.
	for _, v := range slices.Sorted(maps.Keys(r.declared)) {
		if !slices.Contains(vs, v) {
			vs = append(vs, v)
		}
	}
	return vs
}

// Kinds returns the kinds of a version from its steps, Declare and DeclareLocal, each once.
func (r *Registry) Kinds(version string) []record.KindSpec {
	var ks []record.KindSpec
	have := map[string]bool{}
	add := func(k record.KindSpec) {
		if !have[k.Name] {
			have[k.Name] = true
			ks = append(ks, k)
		}
	}
	for _, s := range r.steps {
		for _, sp := range s.specs {
			for _, k := range s.side(sp, version).Kinds {
				add(k.KindSpec)
			}
		}
	}
	for _, k := range slices.Concat(r.declared[version], r.local[version]) {
		add(k)
	}
	return ks
}

// side returns the part of sp for a version. It is empty for any version outside the step.
func (s step) side(sp Spec, version string) Side {
	switch version {
	case s.oldVersion:
		return sp.Old
	case s.newVersion:
		return sp.New
	default:
		return Side{}
	}
}

// Add registers transformers between two adjacent versions. Several calls for the same pair
// accumulate. If Add returns an error, it added nothing.
func (r *Registry) Add(oldVersion, newVersion string, specs ...Spec) error {
	wrap := func(err error) error {
		return fmt.Errorf("add transformers %s to %s: %w", oldVersion, newVersion, err)
	}
	switch {
	case oldVersion == "" || newVersion == "":
		return wrap(errors.New("a version is empty"))
	case oldVersion == newVersion:
		return wrap(errors.New("the versions are the same"))
	case len(specs) == 0:
		return wrap(errors.New("no specs given"))
	}
	at := slices.IndexFunc(r.steps, func(s step) bool { return s.oldVersion == oldVersion && s.newVersion == newVersion })
	next := step{oldVersion: oldVersion, newVersion: newVersion}
	if at >= 0 {
		// Clone, so that an error below leaves the registered step unchanged.
		next.specs = slices.Clone(r.steps[at].specs)
	} else {
		if r.path(newVersion, oldVersion) != nil {
			return wrap(errors.New("they are registered the other way round already"))
		}
		// With a branch or a merge, the path between two versions would be ambiguous.
		for _, s := range r.steps {
			if s.oldVersion == oldVersion || s.newVersion == newVersion {
				return wrap(fmt.Errorf("versions form one line, and %s to %s is registered", s.oldVersion, s.newVersion))
			}
		}
	}
	for _, sp := range specs {
		if err := checkSpec(sp); err != nil {
			return wrap(err)
		}
		next.specs = append(next.specs, sp)
	}
	if err := r.checkStep(next); err != nil {
		return wrap(err)
	}
	if at >= 0 {
		r.steps[at] = next
	} else {
		r.steps = append(r.steps, next)
	}
	return nil
}

func checkSpec(sp Spec) error {
	switch {
	case sp.Name == "":
		return errors.New("a spec has no name")
	case sp.Discontinued || sp.Introduced:
		return checkOneSided(sp)
	case sp.Up == nil:
		return fmt.Errorf("spec %s: Up is nil", sp.Name)
	case sp.Down == nil:
		return fmt.Errorf("spec %s: Down is nil: every step needs a reverse", sp.Name)
	}
	for _, part := range []struct {
		name string
		side Side
	}{{"Old", sp.Old}, {"New", sp.New}} {
		if len(part.side.Kinds) == 0 {
			return fmt.Errorf("spec %s: %s has no kinds", sp.Name, part.name)
		}
		for _, k := range part.side.Kinds {
			if k.Name == "" {
				return fmt.Errorf("spec %s: a kind of %s has no name", sp.Name, part.name)
			}
			// With one alone, events and reads would disagree on the group.
			if (k.GroupOf == nil) != (k.Select == nil) {
				return fmt.Errorf("spec %s: kind %s must have both GroupOf and Select or neither", sp.Name, k.Name)
			}
		}
		// The default anchor is a key of Kinds[0]. That is only right if keys are groups.
		if part.side.Anchor == nil && part.side.Kinds[0].GroupOf != nil && !sp.byContent() {
			return fmt.Errorf("spec %s: %s needs an Anchor, since kind %s has a GroupOf", sp.Name, part.name, part.side.Kinds[0].Name)
		}
	}
	if sp.byContent() {
		return checkByContent(sp)
	}
	return nil
}

// checkStep checks the specs of a step against each other: unique names, and one owner for each
// kind.
func (r *Registry) checkStep(s step) error {
	names := map[string]bool{}
	for _, sp := range s.specs {
		if names[sp.Name] {
			return fmt.Errorf("spec %s is there twice", sp.Name)
		}
		names[sp.Name] = true
	}
	for _, version := range []string{s.oldVersion, s.newVersion} {
		owner, fixed := map[string]string{}, map[string]bool{}
		// A kind of this version may also be part of another step or of Declare.
		for _, known := range r.Kinds(version) {
			fixed[known.Name] = known.Fixed
		}
		for _, sp := range s.specs {
			for _, k := range s.side(sp, version).Kinds {
				// With two owners a record would be in two groups.
				if by, taken := owner[k.Name]; taken {
					return fmt.Errorf("kind %s of %s is in spec %s and in spec %s", k.Name, version, by, sp.Name)
				}
				owner[k.Name] = sp.Name
				if known, there := fixed[k.Name]; there && known != k.Fixed {
					return fmt.Errorf("kind %s of %s is declared as fixed-name and as managed", k.Name, version)
				}
			}
		}
	}
	return nil
}

// Direction compiles the transformation between two namespaces, in either order. A namespace is
// named by its version and an optional location (v1 or v1@b). Between versions that are not
// adjacent, the result runs the steps in memory, one after the other. Between two locations of one
// version, it leaves records as they are. The error is ErrNoDirection if nothing connects the
// versions, and ErrNoChain if the steps cannot run as one.
func (r *Registry) Direction(from, to string) (Direction, error) {
	older, newer := upgradestate.APIVersion(from), upgradestate.APIVersion(to)
	// The same version at another location: a move, not an upgrade.
	if older == newer && from != to {
		return r.same(from, to)
	}
	if path := r.path(older, newer); path != nil {
		return r.compile(from, to, path, true)
	}
	if path := r.path(newer, older); path != nil {
		return r.compile(from, to, path, false)
	}
	// Name the registered steps: the usual cause is a forgotten Add.
	known := make([]string, len(r.steps))
	for i, s := range r.steps {
		known[i] = fmt.Sprintf("%s and %s", s.oldVersion, s.newVersion)
	}
	list := "nothing"
	if len(known) > 0 {
		list = strings.Join(known, ", ")
	}
	return nil, fmt.Errorf("%w: from %q to %q; service %s has transformers between: %s", ErrNoDirection, from, to, r.service, list)
}

// path returns the steps from one version up to another, or nil if there are none.
func (r *Registry) path(from, to string) []step {
	var path []step
	// The bound ends the loop if the versions form a cycle.
	for at := from; len(path) < len(r.steps); {
		i := slices.IndexFunc(r.steps, func(s step) bool { return s.oldVersion == at })
		if i < 0 {
			return nil
		}
		path = append(path, r.steps[i])
		if at = r.steps[i].newVersion; at == to {
			return path
		}
	}
	return nil
}

func (r *Registry) compile(from, to string, path []step, up bool) (Direction, error) {
	for _, s := range path {
		if err := r.undeclared(s); err != nil {
			return nil, fmt.Errorf("from %s to %s: %w", from, to, err)
		}
	}
	// Chain the hashes, so that a change of any step changes the result's hash.
	whole, hash := path[0], r.hash(path[0], from, to)
	for _, next := range path[1:] {
		var err error
		if whole, err = join(whole, next); err != nil {
			return nil, fmt.Errorf("from %s to %s: %w", from, to, err)
		}
		h := sha256.New()
		put(h, "dbcontroller transform chain 1", hash, r.hash(next, from, to))
		hash = hex.EncodeToString(h.Sum(nil)[:8])
	}
	older, newer := path[0].oldVersion, path[len(path)-1].newVersion
	local := r.localSpecs(older, newer)
	return compile(from, to, withLocal(hash, local), slices.Concat(whole.specs, local), up), nil
}

// protocol identifies how controllers write to a target. It is part of the hash, because
// controllers with another protocol break the assumptions of this one and must not take part.
// Protocol 2 loads records without guards, and fences loaders before any comparison.
const protocol = "2"

// hash covers everything that a step declares. It cannot cover a transformer's code, so Revision
// stands for the code. A lens sets Revision to a digest of its text.
func (r *Registry) hash(s step, from, to string) string {
	h := sha256.New()
	put(h, "dbcontroller transform "+protocol, r.service, from, to, s.oldVersion, s.newVersion)
	for _, sp := range s.specs {
		// Optional declarations add to the hash only if they are set, so that older hashes stay
		// valid.
		put(h, "spec", sp.Name, sp.Revision, fmt.Sprint(sp.UpNeedsHave, sp.DownNeedsHave))
		if sp.Discontinued {
			put(h, "discontinued")
		}
		if sp.Introduced {
			put(h, "introduced")
		}
		if sp.Reversal == ReversalNone {
			put(h, "one-way") // decides which groups are parked
		}
		for _, side := range []Side{sp.Old, sp.New} {
			put(h, "side", fmt.Sprint(side.Anchor != nil))
			for _, k := range side.Kinds {
				put(h, "kind", k.Name, fmt.Sprint(k.Fixed, k.GroupOf != nil), string(k.Shape.Options))
				if k.Content != nil {
					put(h, "by content")
				}
				if k.Single {
					put(h, "single")
				}
				for _, ix := range k.Shape.Indexes {
					put(h, "index", string(ix))
				}
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// put writes each part after its length. Without it, ("ab", "c") and ("a", "bc") would hash alike.
func put(h hash.Hash, parts ...string) {
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
}
