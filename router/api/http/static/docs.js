SwaggerUIBundle({
  url: "api-doc/openapi.json",
  dom_id: "#routes",
  deepLinking: true,
  tryItOutEnabled: true,
  validatorUrl: null,  // no document is sent to a validator elsewhere
});
