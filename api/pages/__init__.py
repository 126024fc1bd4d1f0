"""The pages of the service for people, who look at jobs and images in a browser."""
