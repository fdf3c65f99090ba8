package appclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/access/client"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
)

// Config configures an App. Controllers, Application, and Mongo or MongoAt are needed.
type Config struct {
	// Controllers are addresses of controllers of one deployment: HOST:PORT or https://HOST:PORT.
	// Give all of them: any can be down.
	Controllers []string
	// Access is how to prove who one is; its Server is not used. The zero value is nobody.
	Access client.Config
	// Deployment is the deployment's name; empty: the one that Memory is of, or else the one that
	// the first controller to answer is configured with. It stays that one: controllers of another
	// deployment are refused.
	Deployment string
	// Application names the application: letters, digits, and any of . _ -
	Application string

	// Mongo is the database of all versions, where they are in one cluster.
	Mongo *mongo.Client
	// MongoAt returns the database of a place, where versions are in several clusters. It is
	// called once for each cluster.
	MongoAt func(ctx context.Context, at Where) (*mongo.Client, error)

	// Memory is a file in which the App keeps where the data is, so that it can be opened while no
	// controller can be reached. Empty: it cannot.
	Memory string
	// StartTimeout is how long Open looks for a controller; 10 s.
	StartTimeout time.Duration
	// Patience is how long a call waits for a switch to end where its context has no deadline;
	// 30 s. A switch that has not ended after its own deadline, 10 s, is aborted.
	Patience time.Duration
	// TTL is how long a registration lasts when the machine of the application vanishes; 15 s.
	// A process that ends, in whatever way, is noticed after a second.
	TTL time.Duration

	// Log tells of controllers that do not answer; nil: nobody.
	Log *slog.Logger
}

// Where is which cluster holds the data.
type Where struct {
	Version  string
	Database string
	Hosts    string // of the cluster, comma-separated, as the controllers reach it
	Cluster  string // what the cluster calls itself; empty where that is not known
}

var applicationName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

const (
	leastTTL   = time.Second
	longestTTL = 5 * time.Minute
)

// complete returns the configuration with defaults, or what is wrong with it.
func (c Config) complete() (Config, error) {
	defaults := []struct {
		d     *time.Duration
		value time.Duration
	}{{&c.StartTimeout, 10 * time.Second}, {&c.Patience, 30 * time.Second}, {&c.TTL, 15 * time.Second}}
	for _, f := range defaults {
		if *f.d == 0 {
			*f.d = f.value
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case len(c.Controllers) == 0:
		return c, errors.New("no controllers are given: give the addresses of all of them, HOST:PORT")
	case c.Application == "":
		return c, errors.New("the application has no name: give one, such as billing")
	case !applicationName.MatchString(c.Application):
		return c, fmt.Errorf("application %q: give a name of up to 100 letters, digits, and any of . _ -", c.Application)
	case (c.Mongo == nil) == (c.MongoAt == nil):
		return c, errors.New("give either Mongo or MongoAt")
	case c.TTL < leastTTL || c.TTL > longestTTL:
		return c, fmt.Errorf("TTL is %s: give %s to %s", c.TTL, leastTTL, longestTTL)
	case c.StartTimeout < 0 || c.Patience < 0:
		return c, errors.New("StartTimeout and Patience must not be negative")
	}
	return c, nil
}

// controller is one of the controllers.
type controller struct {
	address string
	dbcontrollerv1connect.DeploymentServiceClient
}

// open returns the clients of all controllers.
func (c Config) open() ([]controller, error) {
	var all []controller
	for _, address := range c.Controllers {
		to := c.Access
		to.Server = address
		api, err := client.Open(to)
		if err != nil {
			return nil, err
		}
		all = append(all, controller{address, api})
	}
	return all, nil
}
