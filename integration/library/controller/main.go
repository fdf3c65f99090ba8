// Command controller is the controller of the library service.
package main

import (
	"dbcontroller.dev"
	"dbcontroller.dev/integration/library"
)

func main() { dbcontroller.Controller(library.Service) }
