package appclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/appclient/client"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/base/watchedfile"
)

// Config configures an App. Controllers, Application, and either Mongo or MongoAt are required.
type Config struct {
	// Controllers are the addresses of the controllers of one deployment: HOST:PORT or
	// https://HOST:PORT. Give all of them, because any can be down.
	Controllers []string
	// Access holds the application's credentials for the controllers. Its Server is not used. The
	// zero value has no credentials.
	Access client.Config
	// Deployment is the deployment's name. Empty: the deployment in Memory, or else the one of the
	// first controller that answers. It never changes: the App refuses controllers of another
	// deployment.
	Deployment string
	// Application names the application: up to 100 letters, digits, and any of . _ - It begins with
	// a letter or digit.
	Application string

	// Mongo is the client for all versions, if they are in one cluster. The caller owns it. The App
	// checks by the UUID of a collection that it reaches the data.
	Mongo *mongo.Client
	// MongoAt returns the client for a place, if versions are in several clusters. The App calls it
	// once for each cluster.
	MongoAt func(ctx context.Context, at Where) (*mongo.Client, error)

	// Memory is a file in which the App stores the place of the data. With it, Open succeeds while
	// no controller can be reached. Empty: Open fails then.
	Memory string
	// StartTimeout is the time that Open tries to reach a controller. Default 10 s.
	StartTimeout time.Duration
	// Patience is the time that a call without a deadline waits for the end of a switch. The time in
	// the callback does not count. Default 30 s. By default a controller aborts a switch after 10 s.
	Patience time.Duration
	// TTL is the lifetime of the registration if the application's machine vanishes, from 1 s to 5
	// min. Default 15 s. Controllers notice the end of a process after a second.
	TTL time.Duration

	// Recover receives the panic of a goroutine of the App, and where it was. The App then goes on as after the error
	// that it returns, which must not be nil. It is called before the stack is left. nil: such a panic ends the process.
	Recover func(where string, fault any) error

	// Log receives warnings about controllers that do not answer; nil: no log.
	Log *slog.Logger
}

// Where identifies the database of a version, and the cluster that holds it.
type Where struct {
	Version  string
	Database string
	Hosts    string // of the cluster, comma-separated, as controllers reach it
	Cluster  string // the cluster's own name; empty: unknown
}

var applicationName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

const (
	leastTTL   = time.Second
	longestTTL = 5 * time.Minute
)

// complete returns the configuration with defaults, or an error for an invalid one.
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
	// Too short a TTL expires between two calls; too long a one makes switches wait for dead
	// processes.
	case c.TTL < leastTTL || c.TTL > longestTTL:
		return c, fmt.Errorf("TTL is %s: give %s to %s", c.TTL, leastTTL, longestTTL)
	case c.StartTimeout < 0 || c.Patience < 0:
		return c, errors.New("StartTimeout and Patience must not be negative")
	}
	return c, nil
}

// controller is a client of one controller.
type controller struct {
	address string
	dbcontrollerv1connect.DeploymentServiceClient
}

// open returns clients of all controllers. It does not connect yet. It warns of secrets that every
// user of the machine can read.
func (c Config) open() ([]controller, error) {
	for _, secret := range []string{c.Access.TokenFile, c.Access.Key} {
		if secret != "" && watchedfile.Secret(secret).Exposed() {
			c.Log.Warn(watchedfile.ExposedText, slog.String("file", secret))
		}
	}
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
