package upstream

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/address"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"

	"dbcontroller.dev/internal/base/rawdoc"
)

// Want says which server of a cluster a command is for. The zero value is the primary.
type Want struct {
	Mode      Mode
	Tags      []map[string]string // sets of tags in the order of preference; none: any server
	Staleness time.Duration       // 0: any
	At        address.Address     // this server and no other, as for the rest of a cursor
}

// ErrGone means that a server that has a cursor or a transaction cannot be reached now.
var ErrGone = errors.New("the server is gone")

// Mode is the mode of a read preference.
type Mode int

// Modes, in the words of MongoDB.
const (
	Primary Mode = iota
	PrimaryPreferred
	Secondary
	SecondaryPreferred
	Nearest
)

var modes = map[string]Mode{
	"primary": Primary, "primaryPreferred": PrimaryPreferred, "secondary": Secondary, "secondaryPreferred": SecondaryPreferred, "nearest": Nearest,
}

// WantOf returns the server that a command's $readPreference names. ok is false for an invalid one.
func WantOf(preference bson.Raw) (w Want, ok bool) {
	if preference == nil {
		return w, true
	}
	var p struct {
		Mode         string              `bson:"mode"`
		Tags         []map[string]string `bson:"tags"`
		MaxStaleness float64             `bson:"maxStalenessSeconds"`
	}
	if rawdoc.Unmarshal(preference, &p) != nil {
		return w, false
	}
	w.Mode, ok = modes[p.Mode]
	w.Tags = p.Tags
	if p.MaxStaleness > 0 {
		w.Staleness = time.Duration(p.MaxStaleness * float64(time.Second))
	}
	return w, ok
}

// SelectServer implements description.ServerSelector. It returns one server at random of those that
// fit, and none while the cluster has none.
func (w Want) SelectServer(t description.Topology, servers []description.Server) ([]description.Server, error) {
	if w.At != "" {
		// No other one can come in its place, so do not wait for it.
		for _, s := range servers {
			if s.Addr == w.At && s.Kind != description.Unknown {
				return []description.Server{s}, nil
			}
		}
		return nil, fmt.Errorf("%w: %s", ErrGone, w.At)
	}
	var primaries, secondaries, routers []description.Server
	for _, s := range servers {
		switch s.Kind {
		case description.ServerKindRSPrimary:
			primaries = append(primaries, s)
		case description.ServerKindRSSecondary:
			secondaries = append(secondaries, s)
		case description.ServerKindMongos, description.ServerKindStandalone, description.ServerKindLoadBalancer:
			routers = append(routers, s) // these choose by the preference in the command
		}
	}
	if len(routers) > 0 {
		return near(routers), nil
	}
	secondaries = w.fresh(primaries, secondaries)
	var fit []description.Server
	switch w.Mode {
	case Primary:
		fit = primaries
	case PrimaryPreferred:
		if fit = primaries; len(fit) == 0 {
			fit = w.tagged(secondaries)
		}
	case Secondary:
		fit = w.tagged(secondaries)
	case SecondaryPreferred:
		if fit = w.tagged(secondaries); len(fit) == 0 {
			fit = primaries
		}
	case Nearest:
		fit = w.tagged(append(primaries, secondaries...))
	}
	return near(fit), nil
}

// tagged returns the servers that have the first set of tags that any server has.
func (w Want) tagged(servers []description.Server) []description.Server {
	if len(w.Tags) == 0 {
		return servers
	}
	for _, set := range w.Tags {
		var fit []description.Server
		for _, s := range servers {
			has := true
			for name, value := range set {
				has = has && s.Tags.Contains(name, value)
			}
			if has {
				fit = append(fit, s)
			}
		}
		if len(fit) > 0 {
			return fit
		}
	}
	return nil
}

// fresh leaves out secondaries that are further behind than the preference allows.
func (w Want) fresh(primaries, secondaries []description.Server) []description.Server {
	if w.Staleness == 0 {
		return secondaries
	}
	var newest time.Time
	for _, s := range append(slices.Clone(primaries), secondaries...) {
		if s.LastWriteTime.After(newest) {
			newest = s.LastWriteTime
		}
	}
	return slices.DeleteFunc(slices.Clone(secondaries), func(s description.Server) bool {
		return newest.Sub(s.LastWriteTime)+s.HeartbeatInterval > w.Staleness
	})
}

// localThreshold is how much further than the nearest server another one may be, as drivers have it.
const localThreshold = 15 * time.Millisecond

// near returns one of the nearest servers at random.
func near(servers []description.Server) []description.Server {
	if len(servers) < 2 {
		return servers
	}
	least := slices.MinFunc(servers, func(a, b description.Server) int { return int(a.AverageRTT - b.AverageRTT) }).AverageRTT
	fit := slices.DeleteFunc(slices.Clone(servers), func(s description.Server) bool { return s.AverageRTT > least+localThreshold })
	i := rand.IntN(len(fit))
	return fit[i : i+1]
}
